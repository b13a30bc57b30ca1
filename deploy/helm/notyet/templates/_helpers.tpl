{{- define "notyet.name" -}}
{{- if contains "notyet" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-notyet" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- /* What all pods of services have; the role comes with it where it matters. */ -}}
{{- define "notyet.selector" -}}
app.kubernetes.io/name: notyet
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: services
{{- end }}

{{- define "notyet.labels" -}}
app.kubernetes.io/name: notyet
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "notyet.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* The pods that dispatch. */ -}}
{{- define "notyet.dispatching" -}}
{{ if .Values.apart }}dispatcher{{ else }}all{{ end }}
{{- end }}

{{- /* notyet's file of settings: the user's, and what the pods are made for. */ -}}
{{- define "notyet.config" -}}
{{- $config := deepCopy .Values.config }}
{{- range list "http.addr" "http.tokens" "ops.addr" "sendlog.dir" "stop-timeout" }}
{{- $part := $config }}
{{- range initial (splitList "." .) }}{{ $part = get $part . | default dict }}{{ end }}
{{- if hasKey $part (last (splitList "." .)) }}{{ fail (printf "config must not have %s: the chart sets it" .) }}{{ end }}
{{- end }}
{{- if and (or (dig "http" "jwt" nil $config) (dig "http" "sign-in" nil $config)) (not .Values.tokens.existingSecret) }}{{ fail "config.http.jwt and config.http.sign-in need tokens.existingSecret: its file says what the groups may do" }}{{ end }}
{{- $own := dict "ops" (dict "addr" ":9090") "http" (dict "addr" "127.0.0.1:8080") "sendlog" (dict "dir" "/var/lib/notyet/sendlog") "stop-timeout" (printf "%ds" (int .Values.stopTimeoutSeconds)) }}
{{- if .Values.tokens.existingSecret }}
{{- $_ := set $own "http" (dict "addr" ":8080" "tokens" "/etc/notyet/tokens/tokens.yaml") }}
{{- end }}
{{- if .Values.strimzi.enabled }}
{{- $_ := set $own "kafka" (dict "tls" (dict "enabled" true "ca" "/etc/notyet/kafka/ca.crt" "cert" "/etc/notyet/kafka/user.crt" "key" "/etc/notyet/kafka/user.key")) }}
{{- end }}
{{- with .Values.mysql.shards }}
{{- if or (dig "mysql" "shards" nil $config) (dig "mysql" "dsn-file" nil $config) }}{{ fail "mysql.shards excludes config.mysql.shards and config.mysql.dsn-file: write one of them" }}{{ end }}
{{- $shards := list }}
{{- range $i, $_ := . }}{{ $shards = append $shards (dict "dsn-file" (printf "/etc/notyet/shards/%d/dsn" $i)) }}{{ end }}
{{- $_ := set $own "mysql" (dict "shards" $shards) }}
{{- end }}
{{- $config = mergeOverwrite $config $own }}
{{- if not (dig "kafka" "brokers" nil $config) }}{{ fail "config.kafka.brokers is not set" }}{{ end }}
{{- toYaml $config }}
{{- end }}

{{- /* The databases' Secrets, as files. */ -}}
{{- define "notyet.shardMounts" -}}
{{- if .Values.mysql.shards }}
- {name: shards, mountPath: /etc/notyet/shards, readOnly: true}
{{- end }}
{{- end }}

{{- define "notyet.shardVolume" -}}
{{- with .Values.mysql.shards }}
- name: shards
  projected:
    sources:
      {{- range $i, $shard := . }}
      - secret:
          name: {{ $shard.existingSecret }}
          items: [{key: {{ $shard.key | default "dsn" }}, path: {{ $i }}/dsn}]
      {{- end }}
{{- end }}
{{- end }}

{{- /* 90 % of a quantity of memory, in bytes. */ -}}
{{- define "notyet.gomemlimit" -}}
{{- $text := toString . }}
{{- $n := regexFind "^[0-9]+" $text }}
{{- $suffix := trimPrefix $n $text }}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 }}
{{- if or (not $n) (not (hasKey $units $suffix)) }}{{ fail (printf "limits.memory %s: write a whole number, with k, M, G, Ki, Mi, Gi or without" $text) }}{{ end }}
{{- div (mul (int64 $n) (get $units $suffix) 9) 10 }}
{{- end }}

{{- /* What every pod is allowed: as little as the restricted policy asks for. */ -}}
{{- define "notyet.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* A container of the program, without its name. .root is the chart's, .role the part of the values. */ -}}
{{- define "notyet.container" -}}
{{- $values := get .root.Values .role }}
image: {{ include "notyet.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources: {{ toYaml $values.resources | nindent 2 }}
{{- with dig "limits" "memory" nil $values.resources }}
env:
  - {name: GOMEMLIMIT, value: {{ include "notyet.gomemlimit" . | quote }}}
{{- end }}
{{- $secrets := compact (list .root.Values.existingSecret $values.existingSecret) }}
{{- with $secrets }}
envFrom:
  {{- range . }}
  - secretRef: {name: {{ . }}}
  {{- end }}
{{- end }}
{{- end }}

{{- /* The pods of a service. .root is the chart's, .role the part of the values and the command. */ -}}
{{- define "notyet.pod" -}}
{{- $root := .root }}
metadata:
  labels:
    {{- include "notyet.labels" $root | nindent 4 }}
    app.kubernetes.io/part-of: services
    app.kubernetes.io/component: {{ .role }}
  annotations:
    checksum/config: {{ include "notyet.config" $root | sha256sum }}
    {{- with $root.Values.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  {{- include "notyet.podSecurity" $root | nindent 2 }}
  terminationGracePeriodSeconds: {{ add (int $root.Values.stopTimeoutSeconds) 15 }}
  {{- with $root.Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $root.Values.nodeSelector }}
  nodeSelector: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.tolerations }}
  tolerations: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.affinity }}
  affinity: {{ toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "notyet.selector" $root | nindent 10 }}
          app.kubernetes.io/component: {{ .role }}
  containers:
    - name: notyet
      args: [{{ .role }}, --config=/etc/notyet/config/notyet.yaml]
      {{- include "notyet.container" . | nindent 6 }}
      ports:
        - {name: http, containerPort: 8080}
        - {name: ops, containerPort: 9090}
      # The port opens before the servers are asked, and answers when they were: a first look at a large database takes time.
      startupProbe:
        httpGet: {path: /healthz, port: ops}
        periodSeconds: 2
        failureThreshold: 150
      livenessProbe:
        httpGet: {path: /healthz, port: ops}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: ops}
        periodSeconds: 5
        timeoutSeconds: 5
      volumeMounts:
        - {name: config, mountPath: /etc/notyet/config, readOnly: true}
        {{- include "notyet.shardMounts" $root | nindent 8 }}
        {{- if $root.Values.tokens.existingSecret }}
        - {name: tokens, mountPath: /etc/notyet/tokens, readOnly: true}
        {{- end }}
        {{- if $root.Values.strimzi.enabled }}
        - {name: kafka, mountPath: /etc/notyet/kafka, readOnly: true}
        {{- end }}
        {{- if ne .role "scanner" }}
        - {name: sendlog, mountPath: /var/lib/notyet}
        {{- end }}
        {{- with $root.Values.extraVolumeMounts }}{{ toYaml . | nindent 8 }}{{ end }}
  volumes:
    - name: config
      configMap: {name: {{ include "notyet.name" $root }}}
    {{- include "notyet.shardVolume" $root | nindent 4 }}
    {{- with $root.Values.tokens }}
    {{- if .existingSecret }}
    - name: tokens
      secret:
        secretName: {{ .existingSecret }}
        items: [{key: {{ .key }}, path: tokens.yaml}]
    {{- end }}
    {{- end }}
    {{- if $root.Values.strimzi.enabled }}
    - name: kafka
      projected:
        sources:
          - secret:
              name: {{ $root.Values.strimzi.cluster }}-cluster-ca-cert
              items: [{key: ca.crt, path: ca.crt}]
          - secret:
              name: {{ include "notyet.name" $root }}-kafka
              items: [{key: user.crt, path: user.crt}, {key: user.key, path: user.key}]
    {{- end }}
    {{- with $root.Values.extraVolumes }}{{ toYaml . | nindent 4 }}{{ end }}
{{- end }}
