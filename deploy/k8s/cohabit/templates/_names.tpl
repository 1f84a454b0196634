{{/* Names, labels, images, and which services a house has. */}}

{{/* Short enough for what is put behind it: names of Services have 63 characters. */}}
{{- define "cohabit.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := .Values.fullnameOverride -}}
{{- if not $full -}}
{{- $full = ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- end -}}
{{- $full | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "cohabit.labels" -}}
{{ include "cohabit.selector" . }}
app.kubernetes.io/part-of: cohabit
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- end }}

{{/* Of (root, component). Never changes: selectors are immutable. */}}
{{- define "cohabit.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Of (root, component, image). */}}
{{- define "cohabit.image" -}}
{{- $images := .root.Values.images -}}
{{- $tag := default .root.Chart.AppVersion $images.tag -}}
{{- if and (has .image (list "llm" "diffusion" "matte")) (ne .root.Values.gpu.sharing "none") -}}
{{- $tag = print $tag $images.cardSuffix -}}
{{- end -}}
{{- if $images.registry }}{{ $images.registry }}/{{ end }}{{ get $images .image }}:{{ $tag }}
{{- end }}

{{/* By service: the port, and of whom it is the client (`engines`: whose engines it dials too). The
     one table that addresses, Services and NetworkPolicies are made of. */}}
{{- define "cohabit.table" -}}
broker: {port: 9101, dials: [], engines: []}
scheduler: {port: 9102, dials: [broker, llm, diffusion, matte, simulated], engines: [llm, diffusion, matte, simulated]}
llm: {port: 9103, dials: [broker, scheduler], engines: []}
diffusion: {port: 9104, dials: [broker, scheduler], engines: []}
matte: {port: 9105, dials: [broker, scheduler], engines: []}
jobs: {port: 9106, dials: [scheduler, diffusion, matte], engines: [diffusion, matte]}
simulated: {port: 9107, dials: [broker, scheduler], engines: []}
edge: {port: 8080, dials: [broker, scheduler, jobs, llm, diffusion, matte, simulated], engines: [llm, diffusion, matte, simulated]}
envoy: {port: 8000, dials: [edge, broker, scheduler, jobs], engines: []}
{{- end }}

{{/* The services that this house has, as a YAML list. Envoy is none of them: it is in front. */}}
{{- define "cohabit.present" -}}
{{- $config := include "cohabit.given" . | fromYaml -}}
- broker
- scheduler
{{- range list "llm" "diffusion" "matte" "simulated" "jobs" }}
{{- if hasKey $config . }}
- {{ . }}
{{- end }}
{{- end }}
- edge
{{- end }}

{{/* What the way in from outside leads to. */}}
{{- define "cohabit.front" -}}
{{ include "cohabit.fullname" . }}-{{ ternary "envoy" "edge" .Values.envoy.enabled }}
{{- end }}

{{/* The pod that a service of (service) runs in. */}}
{{- define "cohabit.podOf" -}}
{{- ternary "broker" .service (eq .service "simulated") -}}
{{- end }}

{{- define "cohabit.modelsClaim" -}}
{{- default (printf "%s-models" (include "cohabit.fullname" .)) .Values.storage.models.existingClaim -}}
{{- end }}

{{- define "cohabit.keysSecret" -}}
{{- default (printf "%s-keys" (include "cohabit.fullname" .)) .Values.keys.existingSecret -}}
{{- end }}

{{- define "cohabit.tlsSecret" -}}
{{- default (printf "%s-tls" (include "cohabit.fullname" .)) .Values.tls.existingSecret -}}
{{- end }}
