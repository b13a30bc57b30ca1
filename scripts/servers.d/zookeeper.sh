# ZooKeeper, standalone or an ensemble of three, from Debian's jars. A tick of 500 ms makes session expiry precise enough for tests.
# shellcheck shell=bash disable=SC2034,SC2154

zookeeper_port=${SERVERS_ZOOKEEPER_PORT:-12181}
zookeeper_needs=(/usr/share/java/zookeeper.jar=libzookeeper-java /usr/share/java/slf4j-simple.jar=libslf4j-java)

zookeeper_prepare() {
  cat >"$home/zoo.cfg" <<CFG
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=60000
dataDir=$home/data
clientPort=$port
clientPortAddress=127.0.0.1
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
CFG
  if [[ $cluster ]]; then
    mkdir -p "$home/data"
    number_of "$name" >"$home/data/myid"
    zookeeper_ensemble >>"$home/zoo.cfg"
  fi
  # zookeeper.jar's manifest names the other jars beside it, but no slf4j back-end.
  run=("$(java_bin)" -Xmx256m -Djava.awt.headless=true -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dorg.slf4j.simpleLogger.showDateTime=true
    -cp /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar org.apache.zookeeper.server.quorum.QuorumPeerMain "$home/zoo.cfg")
}

# A member's ports for followers and for elections follow its clients'. A busy machine may take seconds to answer.
zookeeper_ensemble() {
  local each at
  printf 'initLimit=60\nsyncLimit=10\n'
  for each in $(nodes_of zookeeper); do
    at=$(port_of "$each")
    echo "server.$(number_of "$each")=127.0.0.1:$((at + 1)):$((at + 2))"
  done
}
