{{/* cohabit.yaml as the pods read it, and the checksums by which they are rolled. */}}

{{/* What the values say, as YAML; an empty section is there all the same. */}}
{{- define "cohabit.given" -}}
{{- $given := deepCopy .Values.config -}}
{{- if .Values.configFile -}}
{{- $given = fromYaml .Values.configFile -}}
{{- if hasKey $given "Error" -}}
{{- fail (printf "configFile: expected the text of a cohabit.yaml: %s" $given.Error) -}}
{{- end -}}
{{- end -}}
{{- range $section := list "broker" "scheduler" "llm" "diffusion" "matte" "simulated" "jobs" "edge" -}}
{{- if and (hasKey $given $section) (not (get $given $section)) -}}
{{- $_ := set $given $section dict -}}
{{- end -}}
{{- end -}}
{{- toYaml $given -}}
{{- end }}

{{/* The whole configuration: what is given, and over it what the cluster needs. */}}
{{- define "cohabit.config" -}}
{{- $root := . -}}
{{- $config := include "cohabit.given" . | fromYaml -}}
{{- $present := include "cohabit.present" . | fromYamlArray -}}
{{- $listen := dict -}}
{{- $addresses := dict -}}
{{- range $service, $row := include "cohabit.table" . | fromYaml -}}
{{- if and (has $service $present) (ne $service "edge") -}}
{{- $_ := set $listen $service (printf "%s:%v" $root.Values.bindAddress $row.port) -}}
{{- $_ := set $addresses $service (printf "%s-%s:%v" (include "cohabit.fullname" $root) $service $row.port) -}}
{{- end -}}
{{- end -}}
{{- $paths := dict "run_dir" "/run/cohabit" "state_dir" "/var/lib/cohabit/state" "models_dir" "/var/lib/cohabit/models" -}}
{{- $config = mergeOverwrite $config $paths (dict "listen" $listen "addresses" $addresses) -}}
{{- range $service := list "llm" "diffusion" "matte" "simulated" -}}
{{- if has $service $present -}}
{{- $engines := dict "engine_host" "auto" "engine_ports" (list 9200 9263) -}}
{{- $_ := set $config $service (mergeOverwrite (dict "drain_s" 55) (get $config $service) $engines) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $config "broker" (include "cohabit.brokerSection" (dict "root" . "given" (default dict $config.broker)) | fromYaml) -}}
{{- $edge := dict "listen" (printf "%s:8080" .Values.bindAddress) "keys_file" "/etc/cohabit/keys/keys.yaml" -}}
{{- $leaving := dict "linger_s" 5 "drain_s" 60 -}}
{{- $_ := set $config "edge" (mergeOverwrite $leaving (default dict $config.edge) $edge) -}}
{{- if .Values.tls.enabled -}}
{{- $_ := set $config "tls" (dict "ca" "/etc/cohabit/tls/ca.crt" "certificate" "/etc/cohabit/tls/tls.crt" "key" "/etc/cohabit/tls/tls.key") -}}
{{- end -}}
{{- toYaml $config -}}
{{- end }}

{{/* A card that was asked for and is missing is an error, not a reason to compute on the CPU. */}}
{{- define "cohabit.brokerSection" -}}
{{- $broker := .given -}}
{{- $device := default "auto" $broker.device -}}
{{- if ne .root.Values.gpu.sharing "none" -}}
{{- if eq $device "auto" }}{{ $_ := set $broker "device" "nvml" }}{{ end -}}
{{- else if has $device (list "auto" "cpu") -}}
{{- $_ := set $broker "device" "cpu" -}}
{{- $_ := set $broker "capacity_mib" (default .root.Values.cpu.capacityMib $broker.capacity_mib | int) -}}
{{- end -}}
{{- toYaml $broker -}}
{{- end }}

{{/* Of (root, service): what its restart depends on. Its own section without what is read again while
     it runs; the shared keys; where it listens and whom it dials. chassis/sections.py means the same. */}}
{{- define "cohabit.checksum" -}}
{{- $service := .service -}}
{{- $config := include "cohabit.config" .root | fromYaml -}}
{{- $row := get (include "cohabit.table" .root | fromYaml) $service -}}
{{- $reloaded := dict "scheduler" (list "residency") "matte" (list "models" "default_model") -}}
{{- $own := default dict (get $config $service) -}}
{{- range $key := default (list "models") (get $reloaded $service) }}{{ $own = omit $own $key }}{{ end -}}
{{- $shared := omit $config "broker" "scheduler" "llm" "diffusion" "matte" "simulated" "jobs" "edge" "listen" "addresses" "metrics" -}}
{{- $dialled := dict -}}
{{- range $row.dials -}}
{{- if hasKey $config.addresses . }}{{ $_ := set $dialled . (get $config.addresses .) }}{{ end -}}
{{- end -}}
{{- $metrics := get (default dict $config.metrics) $service -}}
{{- dict "own" $own "shared" $shared "listen" (get $config.listen $service) "dialled" $dialled "metrics" $metrics | toJson | sha256sum -}}
{{- end }}
