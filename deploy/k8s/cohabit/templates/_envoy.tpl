{{/* Envoy's configuration: deploy/envoy/envoy.yaml, where policy stands, with the addresses of this
     release. What deploy/envoy/place.py does for a workstation. */}}
{{- define "cohabit.envoyConfig" -}}
{{- $root := . -}}
{{- $full := include "cohabit.fullname" . -}}
{{- $table := include "cohabit.table" . | fromYaml -}}
{{- $envoy := .Files.Get "files/envoy.yaml" | fromYaml -}}
{{- $listeners := list -}}
{{- range $listener := $envoy.static_resources.listeners -}}
{{- if eq $listener.name "insides" -}}
{{- /* Without keys, so for who may forward a port of the pod. */ -}}
{{- $_ := set $listener.address.socket_address "address" "127.0.0.1" -}}
{{- end -}}
{{- if or (ne $listener.name "public") $root.Values.envoy.tlsSecret -}}
{{- $listeners = append $listeners $listener -}}
{{- end -}}
{{- end -}}
{{- $_ := set $envoy.static_resources "listeners" $listeners -}}
{{- range $cluster := $envoy.static_resources.clusters -}}
{{- $host := printf "%s-%s" $full (ternary "edge-pods" $cluster.name (eq $cluster.name "edge")) -}}
{{- $address := dict "address" $host "port_value" (get (get $table $cluster.name) "port") -}}
{{- $endpoint := dict "endpoint" (dict "address" (dict "socket_address" $address)) -}}
{{- $_ := set $cluster.load_assignment "endpoints" (list (dict "lb_endpoints" (list $endpoint))) -}}
{{- if and $root.Values.tls.enabled (ne $cluster.name "edge") -}}
{{- $_ := set $cluster "transport_socket" (include "cohabit.envoyClient" $root | fromYaml) -}}
{{- end -}}
{{- end -}}
{{- toYaml $envoy -}}
{{- end }}

{{/* What Envoy shows services that ask for certificates, and how it knows theirs. */}}
{{- define "cohabit.envoyClient" -}}
name: envoy.transport_sockets.tls
typed_config:
  "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
  sni: cohabit.internal
  common_tls_context:
    alpn_protocols: [h2]
    tls_certificates:
      - certificate_chain: {filename: /etc/cohabit/tls/tls.crt}
        private_key: {filename: /etc/cohabit/tls/tls.key}
    validation_context:
      trusted_ca: {filename: /etc/cohabit/tls/ca.crt}
      match_typed_subject_alt_names:
        - {san_type: DNS, matcher: {exact: cohabit.internal}}
{{- end }}
