# Programs that this Debian lacks, from another Debian: unpacked in the cache with the libraries that they need, and run by
# their own loader. Nothing is installed.
# shellcheck shell=bash disable=SC2154

debian_needs=(apt-get=apt dpkg-deb=dpkg /usr/share/keyrings/debian-archive-keyring.gpg=debian-archive-keyring)

# apt works in folders of its own: it resolves the packages for an empty system, and checks signatures and sums.
debian_apt() {
  local at=$1
  shift
  apt-get -qq -o "Dir::Etc::SourceList=$at/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State=$at/state" \
    -o Dir::State::status=/dev/null -o "Dir::Cache=$at/cache" -o APT::Sandbox::User="$(id -un)" "$@" >&2 </dev/null
}

# unpack_debian ROOT SUITE PACKAGE PROGRAM: the package, from that Debian, unpacked in ROOT; PROGRAM --version must run.
unpack_debian() {
  local root=$1 suite=$2 name=$3 program=$4 tmp package run
  [[ ! -d $root ]] || return 0
  "$scripts/need" "${debian_needs[@]}"
  echo "servers: fetching $name from Debian $suite into $root (once)" >&2
  mkdir -p "$cache"
  tmp=$(mktemp -d "$cache/fetch.XXXXXX")
  # shellcheck disable=SC2064  # now, as $tmp is local
  trap "rm -rf '$tmp'" EXIT
  mkdir -p "$tmp"/{state/lists,cache/archives}/partial "$tmp/root"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main" >"$tmp/sources.list"
  export -f debian_apt
  "$scripts/retry" bash -c 'debian_apt "$@"' - "$tmp" update || fail "reading the list of Debian $suite failed"
  "$scripts/retry" bash -c 'debian_apt "$@"' - "$tmp" install -y --no-install-recommends --download-only "$name" || fail "fetching $name failed"
  for package in "$tmp"/cache/archives/*.deb; do
    # Only scripts need Perl.
    [[ ${package##*/} == *perl* ]] || dpkg-deb -x "$package" "$tmp/root"
  done
  mapfile -t run < <(debian_command "$tmp/root" "$program")
  "${run[@]}" --version >&2 || fail "the $program of Debian $suite does not run here"
  # Renamed last: a folder with this name is whole.
  mv -T "$tmp/root" "$root" 2>/dev/null || [[ -d $root ]]
}

# debian_command ROOT PROGRAM prints, a word a line, what runs the program: its loader, its libraries, itself.
debian_command() {
  local loader
  loader=$(compgen -G "$1/usr/lib/*-linux-gnu/ld-linux-*.so.*" | head -n 1) || fail "there is no loader in $1: remove that folder"
  printf '%s\n' "$loader" --library-path "$(dirname "$loader")" "$1/$2"
}
