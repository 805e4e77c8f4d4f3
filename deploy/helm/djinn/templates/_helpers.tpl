{{/* Names. */}}
{{- define "djinn.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "djinn.coordinator" -}}{{ include "djinn.fullname" . }}-coordinator{{- end -}}
{{- define "djinn.coordinatorHost" -}}{{ include "djinn.coordinator" . }}.{{ .Release.Namespace }}.svc{{- end -}}
{{/* The Service of the ports that are for the cluster's own: scaler and monitoring. */}}
{{- define "djinn.internal" -}}{{ include "djinn.coordinator" . }}-internal{{- end -}}
{{- define "djinn.internalHost" -}}{{ include "djinn.internal" . }}.{{ .Release.Namespace }}.svc{{- end -}}
{{- define "djinn.etcd" -}}{{- if .Values.coordinator.etcd.endpoints -}}true{{- end -}}{{- end -}}
{{/* The addresses at which a coordinator may lead: each has one of its own, as clients go from
     one to the next until they find the leader. */}}
{{- define "djinn.coordinatorAddress" -}}{{ include "djinn.coordinator" .root }}-{{ .index }}.{{ include "djinn.coordinatorHost" .root }}:{{ .root.Values.coordinator.ports.grpc }}{{- end -}}
{{- define "djinn.coordinatorAddresses" -}}
{{- if include "djinn.etcd" . -}}
{{- $addresses := list -}}
{{- range $index := until (int .Values.coordinator.replicas) -}}
{{- $addresses = append $addresses (include "djinn.coordinatorAddress" (dict "root" $ "index" $index)) -}}
{{- end -}}
{{- join "," $addresses -}}
{{- else -}}
{{- include "djinn.coordinatorHost" . }}:{{ .Values.coordinator.ports.grpc -}}
{{- end -}}
{{- end -}}
{{- define "djinn.tokens" -}}{{ default (printf "%s-tokens" (include "djinn.fullname" .)) .Values.tokens.existingSecret }}{{- end -}}

{{/* Labels; the argument is (dict "root" $ "component" NAME). */}}
{{- define "djinn.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .group }}
djinn/worker-group: {{ . }}
{{- end }}
{{- end -}}

{{- define "djinn.labels" -}}
{{ include "djinn.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: djinn
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* An image; the argument is (dict "root" $ "image" IMAGE "repository" DEFAULT). */}}
{{- define "djinn.image" -}}
{{- $repository := default .repository .image.repository -}}
{{- $name := ternary (printf "%s/%s" .root.Values.image.registry $repository) $repository (ne .root.Values.image.registry "") -}}
{{- if .image.digest -}}
{{ $name }}@{{ .image.digest }}
{{- else -}}
{{ $name }}:{{ default .root.Chart.AppVersion .image.tag }}
{{- end -}}
{{- end -}}

{{/* The security of every pod: the standard `restricted`. 10001 is the images' user. */}}
{{- define "djinn.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "djinn.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* Keys of a pod that are the same wherever it has them. */}}
{{- define "djinn.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* Probes of the monitoring port. Liveness asks only whether the process answers: neither
     the coordinator nor the store decides about it. After a failed startup or liveness probe the
     kubelet waits for the probe's own grace period, in which the preStop hook counts, and not for
     the pod's: a worker that hangs cannot drain. The argument is the seconds that a start may
     take. */}}
{{- define "djinn.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: monitoring}
  periodSeconds: 2
  failureThreshold: {{ div (add . 1) 2 }}
  terminationGracePeriodSeconds: 30
livenessProbe:
  httpGet: {path: /livez, port: monitoring}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
  terminationGracePeriodSeconds: 30
readinessProbe:
  httpGet: {path: /readyz, port: monitoring}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end -}}

{{/* Whether the scaler port is open. */}}
{{- define "djinn.scaler" -}}
{{- $on := .Values.coordinator.scaler.enabled -}}
{{- range $name, $group := .Values.workerGroups -}}
{{- $merged := mergeOverwrite (deepCopy $.Values.worker) (deepCopy (default dict $group)) -}}
{{- if $merged.autoscaling.enabled -}}{{- $on = true -}}{{- end -}}
{{- end -}}
{{- if $on -}}true{{- end -}}
{{- end -}}

{{- define "djinn.tls" -}}{{- if ne .Values.tls.mode "none" -}}true{{- end -}}{{- end -}}

{{/* The Secret with a certificate; the argument is (dict "root" $ "role" ROLE). */}}
{{- define "djinn.certificate" -}}
{{- if eq .root.Values.tls.mode "certManager" -}}
{{ include "djinn.fullname" .root }}-{{ .role }}-tls
{{- else -}}
{{- required (printf "tls.mode is secrets: set tls.secrets.%s" .role) (index .root.Values.tls.secrets .role) -}}
{{- end -}}
{{- end -}}

{{/* The `tls` of a server's configuration. */}}
{{- define "djinn.serverTls" -}}
certificate_file: /etc/djinn/tls/tls.crt
private_key_file: /etc/djinn/tls/tls.key
{{- if .Values.tls.mutual }}
client_ca_file: /etc/djinn/tls/ca.crt
{{- end }}
{{- end -}}

{{- define "djinn.clientTls" -}}
ca_file: /etc/djinn/tls/ca.crt
{{- if .Values.tls.mutual }}
certificate_file: /etc/djinn/tls/tls.crt
private_key_file: /etc/djinn/tls/tls.key
{{- end }}
{{- end -}}

{{/* The environment of djinnctl. */}}
{{- define "djinn.ctlEnvironment" -}}
- {name: DJINN_COORDINATOR, value: {{ include "djinn.coordinatorAddresses" . | quote }}}
- {name: DJINN_ADMIN_TOKEN_FILE, value: /etc/djinn/tokens/admin}
{{- if include "djinn.tls" . }}
- {name: DJINN_TLS_CA_FILE, value: /etc/djinn/tls/ca.crt}
{{- if .Values.tls.mutual }}
- {name: DJINN_TLS_CERTIFICATE_FILE, value: /etc/djinn/tls/tls.crt}
- {name: DJINN_TLS_PRIVATE_KEY_FILE, value: /etc/djinn/tls/tls.key}
{{- end }}
{{- else }}
- {name: DJINN_INSECURE, value: "1"}
{{- end }}
{{- end -}}

{{/* coordinator.yaml without operators, tenants and cohorts, which `djinnctl reload` takes over. */}}
{{- define "djinn.coordinatorConfig" -}}
{{- $host := .Values.listenHost -}}
{{- $ports := .Values.coordinator.ports -}}
{{- $config := deepCopy .Values.coordinator.config -}}
{{- $set := dict
  "listen" (printf "%s:%v" $host $ports.grpc)
  "monitoring" (dict "listen" (printf "%s:%v" $host $ports.monitoring) "insecure" true)
  "join_token_file" "/etc/djinn/tokens/join"
  "admin_token_file" "/etc/djinn/tokens/admin" -}}
{{- if include "djinn.etcd" . -}}
{{- $_ := set $set "etcd" (include "djinn.etcdConfig" .Values.coordinator.etcd | fromYaml) -}}
{{- else -}}
{{- $_ := set $set "state_file" "/var/lib/djinn/state.db" -}}
{{- end -}}
{{- if include "djinn.tls" . -}}
{{- $_ := set $set "tls" (include "djinn.serverTls" . | fromYaml) -}}
{{- else -}}
{{- $_ := set $set "insecure" true -}}
{{- end -}}
{{- if .Values.tracing.endpoint -}}
{{- $_ := set $set "tracing" (include "djinn.tracingConfig" .Values.tracing | fromYaml) -}}
{{- end -}}
{{- if include "djinn.scaler" . -}}
{{- $scaler := dict "listen" (printf "%s:%v" $host $ports.scaler) -}}
{{- if not (include "djinn.tls" .) -}}{{- $_ := set $scaler "insecure" true -}}{{- end -}}
{{- $_ := set $set "scaler" $scaler -}}
{{- else if hasKey $config "scaler" -}}
{{- fail "coordinator.config.scaler needs coordinator.scaler.enabled" -}}
{{- end -}}
{{- mergeOverwrite $config $set | toYaml -}}
{{- end -}}

{{/* The `etcd` of coordinator.yaml; the argument is coordinator.etcd. */}}
{{- define "djinn.etcdConfig" -}}
endpoints: {{ toYaml .endpoints | nindent 2 }}
prefix: {{ .prefix }}
lease: {{ .lease }}
{{- if .tls.secret }}
tls:
  ca_file: /etc/djinn/etcd-tls/ca.crt
  certificate_file: /etc/djinn/etcd-tls/tls.crt
  private_key_file: /etc/djinn/etcd-tls/tls.key
  {{- with .tls.serverName }}
  server_name: {{ . }}
  {{- end }}
{{- else if .insecure }}
insecure: true
{{- else }}
{{- fail "coordinator.etcd: set tls.secret, or insecure" }}
{{- end }}
{{- end -}}

{{/* The `tracing` of coordinator.yaml and worker.yaml; the argument is tracing. */}}
{{- define "djinn.tracingConfig" -}}
endpoint: {{ .endpoint | quote }}
sample_ratio: {{ .sampleRatio }}
{{- if .tls.secret }}
tls:
  ca_file: /etc/djinn/tracing-tls/ca.crt
  {{- with .tls.serverName }}
  server_name: {{ . }}
  {{- end }}
{{- else if .insecure }}
insecure: true
{{- else }}
{{- fail "tracing: set tls.secret, or insecure" }}
{{- end }}
{{- end -}}

{{- define "djinn.tenantsConfig" -}}
{{- if .Values.operators }}
operators:
  {{- range $name, $operator := .Values.operators }}
  - {{ dict "name" $name "role" $operator.role "token_file" (printf "/etc/djinn/tokens/operator-%s" $name) | toYaml | nindent 4 | trim }}
  {{- end }}
{{- end }}
{{- if .Values.cohorts }}
cohorts:
  {{- range $name, $cohort := .Values.cohorts }}
  - {{ mergeOverwrite (dict "name" $name) (default dict $cohort) | toYaml | nindent 4 | trim }}
  {{- end }}
{{- end }}
tenants:
  {{- range $name, $tenant := .Values.tenants }}
  - {{ mergeOverwrite (dict "name" $name "token_file" (printf "/etc/djinn/tokens/tenant-%s" $name)) (default dict $tenant) | toYaml | nindent 4 | trim }}
  {{- end }}
{{- end -}}

{{/* The variable with a worker's id: the pod's name, or the group and the node of a DaemonSet's
     worker, as several groups may have a worker on one node. A group's name has no dot. The
     argument is (dict "group" NAME "daemon" BOOL). */}}
{{- define "djinn.workerId" -}}
{{- if .daemon -}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
- {name: WORKER_ID, value: {{ printf "%s.$(NODE_NAME)" .group | quote }}}
{{- else -}}
- name: WORKER_ID
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- end -}}
{{- end -}}

{{/* worker.yaml; the argument is (dict "root" $ "worker" GROUP). @…@ is per pod. On SIGTERM the
     worker drains by itself: alone, or what is left after the container `drain`. */}}
{{- define "djinn.workerConfig" -}}
{{- $root := .root -}}
{{- $worker := .worker -}}
{{- $config := deepCopy $worker.config -}}
{{- if hasKey $config "drain_timeout" -}}
{{- fail "worker.config.drain_timeout: set worker.drain.timeoutSeconds, which sets the pod's grace period, too" -}}
{{- end -}}
{{- $kind := ternary "cuda:0" $worker.device (eq $worker.device "cuda") -}}
{{- $set := dict
  "worker_id" "@WORKER_ID@"
  "listen" (printf "%s:%v" $root.Values.listenHost $worker.ports.grpc)
  "advertise" (printf "@HOST@:%v" $worker.ports.grpc)
  "monitoring" (dict "listen" (printf "%s:%v" $root.Values.listenHost $worker.ports.monitoring) "insecure" true)
  "coordinator" (include "djinn.coordinatorAddresses" $root)
  "join_token_file" "/etc/djinn/tokens/join"
  "drain_timeout" (printf "%ds" (ternary 10 (int $worker.drain.timeoutSeconds) $worker.drain.enabled))
  "device" (dict "kind" $kind) -}}
{{- /* A worker takes half of the node's memory, and all of its cores, unless told. */ -}}
{{- if ne $worker.device "cuda" -}}
{{- $own := default dict $config.device -}}
{{- $limits := default dict $worker.resources.limits -}}
{{- $memory := toString (default "" $limits.memory) -}}
{{- $number := regexFind "^[0-9]+" $memory | int64 -}}
{{- if hasKey $own "memory" -}}
{{- else if regexMatch "^[0-9]+Gi$" $memory -}}
{{- $_ := set $set.device "memory" (printf "%dMiB" (mul $number 512)) -}}
{{- else if regexMatch "^[0-9]+Mi$" $memory -}}
{{- $_ := set $set.device "memory" (printf "%dMiB" (div $number 2)) -}}
{{- else -}}
{{- fail "set a worker's config.device.memory, or its resources.limits.memory in Gi or Mi" -}}
{{- end -}}
{{- $cores := toString (default "" $limits.cpu) -}}
{{- if and (not (hasKey $own "threads")) (regexMatch "^[0-9]+$" $cores) -}}
{{- $_ := set $set.device "threads" (int $cores) -}}
{{- end -}}
{{- end -}}
{{- if include "djinn.tls" $root -}}
{{- $client := include "djinn.clientTls" $root | fromYaml -}}
{{- $_ := set $set "tls" (include "djinn.serverTls" $root | fromYaml) -}}
{{- $_ := set $set "coordinator_tls" $client -}}
{{- $_ := set $set "peer_tls" (merge (dict "server_name" $root.Values.tls.workerServerName) $client) -}}
{{- else -}}
{{- $_ := set $set "insecure" true -}}
{{- end -}}
{{- if $root.Values.tracing.endpoint -}}
{{- $_ := set $set "tracing" (include "djinn.tracingConfig" $root.Values.tracing | fromYaml) -}}
{{- end -}}
{{- /* Mode process is experimental on GPUs; tenants elsewhere get processes of their own. */ -}}
{{- $isolation := default dict $config.isolation -}}
{{- $mode := default (ternary "shared" "process" (eq $worker.device "cuda")) $isolation.mode -}}
{{- $_ := set $set "isolation" (dict "mode" $mode) -}}
{{- if eq $mode "process" -}}
{{- $_ := set $set.isolation "ports" $worker.ports.executors -}}
{{- end -}}
{{- if $worker.contentDisk.enabled -}}
{{- $_ := set $set "content_disk" (dict "directory" "/var/lib/djinn/contents" "limit" $worker.contentDisk.limit) -}}
{{- end -}}
{{- mergeOverwrite $config $set | toYaml -}}
{{- end -}}

{{/* Rules of a NetworkPolicy. The first is empty without a collector. */}}
{{- define "djinn.tracingEgress" -}}
{{- if .Values.tracing.endpoint -}}
- ports:
    - {port: {{ splitList ":" .Values.tracing.endpoint | last }}, protocol: TCP}
  to: {{ toYaml .Values.networkPolicy.tracing | nindent 4 }}
{{- end -}}
{{- end -}}

{{- define "djinn.dnsEgress" -}}
- ports: {{ toYaml .Values.networkPolicy.dns.ports | nindent 4 }}
  to: {{ toYaml .Values.networkPolicy.dns.peers | nindent 4 }}
{{- end -}}
