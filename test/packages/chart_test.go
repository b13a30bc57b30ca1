// Package packages tests what notyet is shipped as: the Helm chart and the units of systemd. It is a module of its own, so that what reads
// charts never chooses a version of what the program is built from.
package packages

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

const chartDir = "../../deploy/helm/notyet"

type values = map[string]any

// forms are the sets of values that the tests render.
func forms(t *testing.T) map[string]values {
	everything := values{
		"serviceMonitor": values{"enabled": true, "labels": values{"release": "prometheus"}},
		"keda":           values{"enabled": true, "prometheus": "http://prometheus:9090"},
		"strimzi":        values{"enabled": true, "cluster": "main", "targets": []any{values{"name": "orders"}, values{"name": "shop.", "patternType": "prefix"}}},
		"migrate":        values{"existingSecret": "tables"},
		"image":          values{"digest": "sha256:" + strings.Repeat("0", 64)},
		"networkPolicy": values{
			"apiFrom":     []any{values{"namespaceSelector": values{}}},
			"metricsFrom": []any{values{"namespaceSelector": values{}}},
			"egress":      []any{values{"ports": []any{values{"port": 53, "protocol": "UDP"}}}},
		},
		"imagePullSecrets": []any{values{"name": "pull"}}, "serviceAccountName": "notyet", "priorityClassName": "high",
		"podAnnotations": values{"team": "payments"}, "nodeSelector": values{"disk": "ssd"},
		"tolerations":       []any{values{"key": "notyet", "operator": "Exists"}},
		"affinity":          values{"nodeAffinity": values{}},
		"extraVolumes":      []any{values{"name": "ca", "secret": values{"secretName": "ca"}}},
		"extraVolumeMounts": []any{values{"name": "ca", "mountPath": "/etc/notyet/ca", "readOnly": true}},
	}
	small, full := readValues(t, "values-small.yaml"), readValues(t, "values-full.yaml")
	shards := values{"mysql": values{"shards": []any{values{"existingSecret": "mysql-0"}, values{"existingSecret": "mysql-1", "key": "url"}}}}
	return map[string]values{
		"small":            small,
		"full":             full,
		"small, all parts": chartutil.CoalesceTables(deepCopy(t, everything), small),
		"full, all parts":  chartutil.CoalesceTables(deepCopy(t, everything), full),
		"small, shards":    chartutil.CoalesceTables(deepCopy(t, shards), small),
		"full, shards":     chartutil.CoalesceTables(deepCopy(t, shards), full),
	}
}

func deepCopy(t *testing.T, v values) (out values) {
	t.Helper()
	text, err := yaml.Marshal(v)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &out))
	return out
}

func readValues(t *testing.T, name string) (out values) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, name))
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(text, &out))
	return out
}

// rendered returns what Helm makes of the chart's files.
func rendered(v values) (map[string]string, error) {
	chart, err := loader.Load(chartDir)
	if err != nil {
		return nil, err
	}
	all, err := chartutil.ToRenderValues(chart, v, common.ReleaseOptions{Name: "notyet", Namespace: "payments", Revision: 1, IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}

// render returns the documents of the chart, as Helm hands them to the cluster.
func render(v values) (documents []string, err error) {
	files, err := rendered(v)
	for name, text := range files {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		for _, doc := range strings.Split("\n"+text, "\n---") {
			var empty any
			if err := yaml.Unmarshal([]byte(doc), &empty); err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", name, err, doc)
			}
			if empty != nil {
				documents = append(documents, doc)
			}
		}
	}
	return documents, err
}

// release is a rendered chart, decoded.
type release struct {
	objects []runtime.Object
	custom  map[string][]values // by kind
	pods    map[string]podSpec  // by component
	config  map[string]string   // the settings, by name of the ConfigMap
}

type podSpec struct {
	labels labels.Set
	spec   corev1.PodSpec
	claims []corev1.PersistentVolumeClaim
}

func decode(t *testing.T, v values) release {
	t.Helper()
	documents, err := render(v)
	require.NoError(t, err)
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Yaml: true, Strict: true})
	out := release{custom: map[string][]values{}, pods: map[string]podSpec{}, config: map[string]string{}}
	named := map[string]bool{}
	for _, doc := range documents {
		var about metav1.PartialObjectMetadata
		require.NoError(t, yaml.Unmarshal([]byte(doc), &about), doc)
		id := about.Kind + " " + about.Name
		require.False(t, named[id], "%s is there twice", id)
		named[id] = true
		require.LessOrEqual(t, len(about.Name), 63)
		if !scheme.Scheme.Recognizes(about.GroupVersionKind()) {
			var custom values
			require.NoError(t, yaml.UnmarshalStrict([]byte(doc), &custom), doc)
			out.custom[about.Kind] = append(out.custom[about.Kind], custom)
			continue
		}
		object, _, err := strict.Decode([]byte(doc), nil, nil)
		require.NoError(t, err, doc)
		out.objects = append(out.objects, object)
		out.add(object)
	}
	return out
}

func (r release) add(object runtime.Object) {
	note := func(template corev1.PodTemplateSpec, claims []corev1.PersistentVolumeClaim) {
		r.pods[template.Labels["app.kubernetes.io/component"]] = podSpec{template.Labels, template.Spec, claims}
	}
	switch o := object.(type) {
	case *appsv1.Deployment:
		note(o.Spec.Template, nil)
	case *appsv1.StatefulSet:
		note(o.Spec.Template, o.Spec.VolumeClaimTemplates)
	case *batchv1.Job:
		note(o.Spec.Template, nil)
	case *corev1.ConfigMap:
		r.config[o.Name] = o.Data["notyet.yaml"]
	}
}

// components returns the services' pods that a selector finds.
func (r release) selected(t *testing.T, s *metav1.LabelSelector) (out []string) {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	require.NoError(t, err)
	for component, pod := range r.pods {
		if selector.Matches(pod.labels) {
			out = append(out, component)
		}
	}
	slices.Sort(out)
	return out
}

func eachForm(t *testing.T, test func(t *testing.T, r release, v values)) {
	for name, v := range forms(t) {
		t.Run(name, func(t *testing.T) { test(t, decode(t, v), v) })
	}
}

func services(r release) []string {
	if _, apart := r.pods["scanner"]; apart {
		return []string{"dispatcher", "scanner"}
	}
	return []string{"all"}
}

// Pods are admitted under the restricted policy, and cannot write their own file system.
func TestChartPodsAreRestricted(t *testing.T) {
	checks, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	require.NoError(t, err)
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	eachForm(t, func(t *testing.T, r release, _ values) {
		require.Len(t, r.pods, len(services(r))+1, "the services and migrate")
		for component, pod := range r.pods {
			found := policy.AggregateCheckResults(checks.EvaluatePod(restricted, &metav1.ObjectMeta{}, &pod.spec))
			require.True(t, found.Allowed, "%s: %s", component, found.ForbiddenDetail())
			require.False(t, *pod.spec.AutomountServiceAccountToken, component)
			for _, c := range pod.spec.Containers {
				require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, component)
			}
		}
	})
}

// Each mount has its volume, and each object that a pod names is in the release or is the operator's own.
func TestChartPodsFindWhatTheyName(t *testing.T) {
	eachForm(t, func(t *testing.T, r release, v values) {
		own := []string{"notyet-tokens", "ca"}
		for component, pod := range r.pods {
			volumes := map[string]bool{}
			for _, c := range pod.claims {
				volumes[c.Name] = true
			}
			for _, x := range pod.spec.Volumes {
				volumes[x.Name] = true
				if x.ConfigMap != nil {
					require.Contains(t, r.config, x.ConfigMap.Name, component)
				}
				if x.Secret != nil {
					require.Contains(t, own, x.Secret.SecretName, component)
				}
			}
			c := pod.spec.Containers[0]
			require.Len(t, c.VolumeMounts, len(volumes), component)
			for _, m := range c.VolumeMounts {
				require.True(t, volumes[m.Name], "%s mounts %s", component, m.Name)
			}
			require.Equal(t, v["existingSecret"], c.EnvFrom[0].SecretRef.Name, component)
			require.Equal(t, component, c.Args[0])
			require.Equal(t, component == "all" || component == "dispatcher", volumes["sendlog"], component)
			wantSecrets := 1
			if component == "migrate" && v["migrate"] != nil {
				wantSecrets = 2
				require.Equal(t, "tables", c.EnvFrom[1].SecretRef.Name, "the last wins")
			}
			require.Len(t, c.EnvFrom, wantSecrets, component)
			if component == "migrate" {
				require.Equal(t, v["strimzi"] != nil, slices.Contains(c.Args, "--database-only"))
			}
		}
	})
}

// The hooks come in order: the Job's settings before the Job.
func TestChartMigratesFirst(t *testing.T) {
	eachForm(t, func(t *testing.T, r release, _ values) {
		weights := map[string]int{}
		for _, object := range r.objects {
			about := object.(metav1.Object)
			if about.GetAnnotations()["helm.sh/hook"] == "" {
				continue
			}
			require.Equal(t, "pre-install,pre-upgrade", about.GetAnnotations()["helm.sh/hook"])
			weight, err := strconv.Atoi(about.GetAnnotations()["helm.sh/hook-weight"])
			require.NoError(t, err)
			weights[fmt.Sprintf("%T", object)] = weight
		}
		require.Len(t, weights, 2)
		require.Less(t, weights["*v1.ConfigMap"], weights["*v1.Job"])
		require.Equal(t, "notyet-migrate", r.pods["migrate"].spec.Volumes[0].ConfigMap.Name, "the other one does not exist yet")
	})
}

// A pod outlives the stop of its service, and Go's limit stays below the container's.
func TestChartLimits(t *testing.T) {
	eachForm(t, func(t *testing.T, r release, _ values) {
		for component, pod := range r.pods {
			c := pod.spec.Containers[0]
			i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" })
			require.GreaterOrEqual(t, i, 0, component)
			limit, err := strconv.ParseInt(c.Env[i].Value, 10, 64)
			require.NoError(t, err)
			require.Equal(t, c.Resources.Limits.Memory().Value()*9/10, limit, component)
		}
		for _, component := range services(r) {
			pod := r.pods[component].spec
			require.EqualValues(t, 45, *pod.TerminationGracePeriodSeconds)
			require.Contains(t, r.config["notyet"], "stop-timeout: 30s")
			c := pod.Containers[0]
			for path, probe := range map[string]*corev1.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
				require.Equal(t, path, probe.HTTPGet.Path)
				require.Equal(t, "ops", probe.HTTPGet.Port.StrVal)
			}
			require.Equal(t, "/healthz", c.StartupProbe.HTTPGet.Path)
			require.Contains(t, c.Ports, corev1.ContainerPort{Name: "ops", ContainerPort: 9090, Protocol: ""})
			require.Contains(t, r.config["notyet"], "addr: :9090")
		}
	})
}

// Every selector finds the pods of the services that it is for, and never the Job's.
func TestChartSelectors(t *testing.T) {
	eachForm(t, func(t *testing.T, r release, v values) {
		budgets := []string{}
		for _, object := range r.objects {
			switch o := object.(type) {
			case *appsv1.Deployment:
				require.Equal(t, []string{"scanner"}, r.selected(t, o.Spec.Selector))
			case *appsv1.StatefulSet:
				require.Equal(t, services(r)[:1], r.selected(t, o.Spec.Selector))
				require.Equal(t, "notyet-pods", o.Spec.ServiceName)
				require.Equal(t, v["keda"] != nil, o.Spec.Replicas == nil, "KEDA owns the number")
			case *policyv1.PodDisruptionBudget:
				found := r.selected(t, o.Spec.Selector)
				require.Len(t, found, 1)
				budgets = append(budgets, found...)
			case *networkingv1.NetworkPolicy:
				require.Equal(t, services(r), r.selected(t, &o.Spec.PodSelector))
				require.Equal(t, v["networkPolicy"] != nil, slices.Contains(o.Spec.PolicyTypes, networkingv1.PolicyTypeEgress))
			case *corev1.Service:
				require.Equal(t, services(r), r.selected(t, &metav1.LabelSelector{MatchLabels: o.Spec.Selector}))
				if r.custom["ServiceMonitor"] != nil {
					var monitor struct {
						Spec struct{ Selector metav1.LabelSelector }
					}
					text, err := yaml.Marshal(r.custom["ServiceMonitor"][0])
					require.NoError(t, err)
					require.NoError(t, yaml.Unmarshal(text, &monitor))
					selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
					require.NoError(t, err)
					require.Equal(t, o.Name == "notyet-pods", selector.Matches(labels.Set(o.Labels)), "each pod is scraped once")
				}
			}
		}
		slices.Sort(budgets)
		require.Equal(t, services(r), budgets)
	})
}

// The API is behind a Service only where callers must have tokens.
func TestChartAPIWantsTokens(t *testing.T) {
	eachForm(t, func(t *testing.T, r release, v values) {
		tokens := v["tokens"] != nil
		served := slices.ContainsFunc(r.objects, func(o runtime.Object) bool { s, ok := o.(*corev1.Service); return ok && s.Name == "notyet" })
		require.Equal(t, tokens, served)
		require.Equal(t, tokens, strings.Contains(r.config["notyet"], "addr: :8080"))
		require.Equal(t, !tokens, strings.Contains(r.config["notyet"], "addr: 127.0.0.1:8080"))
	})
}

// Callers of an OpenID provider get in with settings of notyet's own file, beside those that the chart sets.
func TestChartTakesAnIssuer(t *testing.T) {
	v := readValues(t, "values-full.yaml")
	v["config"].(values)["http"] = values{
		"jwt": values{"issuer": "https://login.example", "audience": "notyet"}, "sign-in": values{"client-id": "console", "scopes": []any{"groups"}}, "public-url": "https://notyet.example",
	}
	var config struct{ HTTP values }
	require.NoError(t, yaml.Unmarshal([]byte(decode(t, v).config["notyet"]), &config))
	require.Equal(t, values{
		"addr": ":8080", "tokens": "/etc/notyet/tokens/tokens.yaml", "public-url": "https://notyet.example",
		"jwt": values{"issuer": "https://login.example", "audience": "notyet"}, "sign-in": values{"client-id": "console", "scopes": []any{"groups"}},
	}, config.HTTP)
}

// Who installs the chart is told where tokens go in the clear.
func TestChartNotesWarnOfTokensInTheClear(t *testing.T) {
	for name, c := range map[string]struct {
		tokens bool
		http   values
		warns  bool
	}{
		"without tokens": {false, nil, false}, "with tokens": {true, nil, true}, "by HTTPS": {true, values{"tls": values{"enabled": true}}, false},
		"behind an ingress": {true, values{"public-url": "https://notyet.example"}, false}, "by a name": {true, values{"public-url": "http://localhost"}, true},
	} {
		v := readValues(t, "values-small.yaml")
		v["tokens"] = values{"existingSecret": ""}
		if c.tokens {
			v["tokens"] = values{"existingSecret": "notyet-tokens"}
		}
		if c.http != nil {
			v["config"].(values)["http"] = c.http
		}
		all, err := rendered(v)
		require.NoError(t, err, name)
		require.Equal(t, c.warns, strings.Contains(all["notyet/templates/NOTES.txt"], "WARNING: tokens go over the network in the clear"), name)
		require.Contains(t, all["notyet/templates/NOTES.txt"], "port-forward", name)
	}
}

// Services and migrate have the DSN of each database in the file that their settings name, in the order of the values.
func TestChartMountsTheDatabases(t *testing.T) {
	v := readValues(t, "values-full.yaml")
	v["mysql"] = values{"shards": []any{values{"existingSecret": "home"}, values{"existingSecret": "second", "key": "url"}}}
	r := decode(t, v)
	require.Len(t, r.pods, 3)
	for component, pod := range r.pods {
		i := slices.IndexFunc(pod.spec.Volumes, func(v corev1.Volume) bool { return v.Name == "shards" })
		require.GreaterOrEqual(t, i, 0, component)
		var found []string
		for _, source := range pod.spec.Volumes[i].Projected.Sources {
			require.Len(t, source.Secret.Items, 1)
			found = append(found, source.Secret.Name+"/"+source.Secret.Items[0].Key+" at "+source.Secret.Items[0].Path)
		}
		require.Equal(t, []string{"home/dsn at 0/dsn", "second/url at 1/dsn"}, found, component)
		require.Contains(t, pod.spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "shards", MountPath: "/etc/notyet/shards", ReadOnly: true}, component)
	}
	for name, text := range r.config {
		var config struct{ MySQL values }
		require.NoError(t, yaml.Unmarshal([]byte(text), &config))
		require.Equal(t, values{"shards": []any{values{"dsn-file": "/etc/notyet/shards/0/dsn"}, values{"dsn-file": "/etc/notyet/shards/1/dsn"}}}, config.MySQL, name)
	}
}

func TestChartRefusesMistakes(t *testing.T) {
	kafka := values{"brokers": []any{"kafka:9092"}}
	for want, v := range map[string]values{
		"config.kafka.brokers is not set":           {},
		"config must not have http.addr":            {"config": values{"kafka": kafka, "http": values{"addr": ":80"}}},
		"need tokens.existingSecret":                {"config": values{"kafka": kafka, "http": values{"jwt": values{"issuer": "https://login.example"}}}},
		"config must not have stop-timeout":         {"config": values{"kafka": kafka, "stop-timeout": "1h"}},
		"'repliccas' not allowed":                   {"config": values{"kafka": kafka}, "all": values{"repliccas": 3}},
		"limits.memory 1.5Gi: write a whole number": {"config": values{"kafka": kafka}, "all": values{"resources": values{"limits": values{"memory": "1.5Gi"}}}},
		"mysql.shards excludes config.mysql.shards": {"config": values{"kafka": kafka, "mysql": values{"shards": []any{"a"}}}, "mysql": values{"shards": []any{values{"existingSecret": "a"}}}},
		"missing property 'existingSecret'":         {"config": values{"kafka": kafka}, "mysql": values{"shards": []any{values{"key": "dsn"}}}},
		"keda.prometheus is not set":                {"config": values{"kafka": kafka}, "keda": values{"enabled": true}},
		"strimzi.cluster is not set":                {"config": values{"kafka": kafka}, "strimzi": values{"enabled": true}},
	} {
		_, err := render(v)
		require.ErrorContains(t, err, want)
	}
	_, err := render(values{"config": values{"kafka": kafka}})
	require.NoError(t, err)
}
