{{/* The parts that the pods of the house share. Arguments are (root, service) unless they say more. */}}

{{- define "cohabit.podMetadata" -}}
labels:
  {{- include "cohabit.selector" (dict "root" .root "component" .service) | nindent 2 }}
annotations:
  checksum/config: {{ include "cohabit.checksum" . }}
  {{- if and (eq .service "broker") (has "simulated" (include "cohabit.present" .root | fromYamlArray)) }}
  checksum/simulated: {{ include "cohabit.checksum" (dict "root" .root "service" "simulated") }}
  {{- end }}
  {{- with .root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Whose pods compute on the card or, the broker, read it. */}}
{{- define "cohabit.usesCard" -}}
{{- if and (ne .root.Values.gpu.sharing "none") (has .service (list "broker" "llm" "diffusion" "matte")) }}yes{{ end -}}
{{- end }}

{{/* Told to stop, a model service drains for drain_s; then it ends its engines, within twenty seconds. */}}
{{- define "cohabit.modelsGrace" -}}
{{- add (ceil (get (include "cohabit.config" .root | fromYaml) .service).drain_s) 20 -}}
{{- end }}

{{- define "cohabit.podCommon" -}}
serviceAccountName: {{ include "cohabit.fullname" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- if and (include "cohabit.usesCard" .) .root.Values.gpu.runtimeClassName }}
runtimeClassName: {{ .root.Values.gpu.runtimeClassName }}
{{- end }}
{{- with .root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- define "cohabit.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* One service of (root, service, module) as a container. */}}
{{- define "cohabit.container" -}}
{{- $port := get (get (include "cohabit.table" .root | fromYaml) .service) "port" -}}
- name: {{ .service }}
  image: {{ include "cohabit.image" (dict "root" .root "image" (ternary .service "service" (has .service (list "llm" "diffusion" "matte")))) }}
  imagePullPolicy: {{ .root.Values.images.pullPolicy }}
  args: [{{ .module }}]
  env:
    - {name: COHABIT_CONFIG, value: /etc/cohabit/cohabit.yaml}
    {{- with include "cohabit.cardEnv" . }}
    {{- . | nindent 4 }}
    {{- end }}
  ports:
    - name: {{ ternary "http" (ternary "grpc-simulated" "grpc" (eq .service "simulated")) (eq .service "edge") }}
      containerPort: {{ $port }}
  {{- include "cohabit.containerSecurity" . | nindent 2 }}
  resources:
    {{- include "cohabit.resources" . | nindent 4 }}
  {{- include (ternary "cohabit.httpProbes" "cohabit.grpcProbes" (eq .service "edge")) (dict "root" .root "port" $port) | nindent 2 }}
  volumeMounts:
    - {name: config, mountPath: /etc/cohabit, readOnly: true}
    {{- if eq .service "edge" }}
    - {name: keys, mountPath: /etc/cohabit/keys, readOnly: true}
    {{- end }}
    {{- if .root.Values.tls.enabled }}
    - {name: tls, mountPath: /etc/cohabit/tls, readOnly: true}
    {{- end }}
    {{- if has .service (list "broker" "llm" "diffusion" "matte") }}
    - {name: models, mountPath: /var/lib/cohabit/models, readOnly: true}
    {{- end }}
    {{- if eq .service "matte" }}
    - {name: solver, mountPath: /var/cache/cohabit}
    {{- end }}
    - {name: state, mountPath: /var/lib/cohabit/state}
    - {name: run, mountPath: /run/cohabit}
    - {name: tmp, mountPath: /tmp}
{{- end }}

{{/* NVIDIA's container runtime reads these, not the house. With a device plugin it is the plugin that
     says which card (and, with MPS, where its daemon is). The broker computes nothing. */}}
{{- define "cohabit.cardEnv" -}}
{{- if include "cohabit.usesCard" . -}}
{{- if eq .root.Values.gpu.sharing "whole" -}}
- {name: NVIDIA_VISIBLE_DEVICES, value: {{ .root.Values.gpu.visibleDevices | quote }}}
{{ end -}}
- {name: NVIDIA_DRIVER_CAPABILITIES, value: {{ ternary "utility" "compute,utility" (eq .service "broker") | quote }}}
{{- end -}}
{{- end }}

{{/* Of a card that is shared by a device plugin, each pod takes one replica. */}}
{{- define "cohabit.resources" -}}
{{- $resources := deepCopy (get .root.Values .service).resources -}}
{{- if and (include "cohabit.usesCard" .) (has .root.Values.gpu.sharing (list "timeSlicing" "mps")) -}}
{{- $limits := merge (dict .root.Values.gpu.resourceName 1) (default dict $resources.limits) -}}
{{- $_ := set $resources "limits" $limits -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end }}

{{/* Health is the service's: it stays SERVING while a model loads, which another process does. The
     kubelet speaks plain gRPC, so where certificates are demanded the probe runs in the pod. */}}
{{- define "cohabit.grpcProbes" -}}
startupProbe:
  {{- include "cohabit.grpcProbe" . | nindent 2 }}
  periodSeconds: 2
  timeoutSeconds: 10
  failureThreshold: 90
readinessProbe:
  {{- include "cohabit.grpcProbe" . | nindent 2 }}
  # In the pod each question starts a process, which costs as much as a second.
  periodSeconds: {{ ternary 20 5 .root.Values.tls.enabled }}
  timeoutSeconds: {{ ternary 10 5 .root.Values.tls.enabled }}
  failureThreshold: 3
# Two minutes of silence: a machine whose cores are all busy with a load is slow, not dead.
livenessProbe:
  {{- include "cohabit.grpcProbe" . | nindent 2 }}
  periodSeconds: 20
  timeoutSeconds: 10
  failureThreshold: 6
{{- end }}

{{- define "cohabit.grpcProbe" -}}
{{- if .root.Values.tls.enabled -}}
exec:
  command: [python3, -P, -m, chassis.probe, "127.0.0.1:{{ .port }}"]
{{- else -}}
grpc: {port: {{ .port }}}
{{- end -}}
{{- end }}

{{- define "cohabit.httpProbes" -}}
startupProbe:
  httpGet: {path: /health, port: http}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 90
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
livenessProbe:
  httpGet: {path: /health, port: http}
  periodSeconds: 20
  timeoutSeconds: 10
  failureThreshold: 6
{{- end }}

{{/* Of (root, service, claim); a claim's name, or none: state that may be lost with the pod. */}}
{{- define "cohabit.volumes" -}}
- name: config
  configMap: {name: {{ include "cohabit.fullname" .root }}-config}
{{- if eq .service "edge" }}
- name: keys
  secret: {secretName: {{ include "cohabit.keysSecret" .root }}, optional: true, defaultMode: 0440}
{{- end }}
{{- if .root.Values.tls.enabled }}
- name: tls
  secret: {secretName: {{ include "cohabit.tlsSecret" .root }}, defaultMode: 0440}
{{- end }}
{{- /* The broker reads them, too: it warms the page cache before a load. */}}
{{- if has .service (list "broker" "llm" "diffusion" "matte") }}
- name: models
  persistentVolumeClaim: {claimName: {{ include "cohabit.modelsClaim" .root }}}
{{- end }}
{{- if eq .service "matte" }}
- name: solver
  emptyDir: {sizeLimit: 256Mi}
{{- end }}
- name: state
  {{- if .claim }}
  persistentVolumeClaim: {claimName: {{ .claim }}}
  {{- else }}
  emptyDir: {sizeLimit: 1Gi}
  {{- end }}
- name: run
  emptyDir: {medium: Memory, sizeLimit: 64Mi}
- name: tmp
  emptyDir: {sizeLimit: 4Gi}
{{- end }}
