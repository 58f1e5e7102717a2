{{- define "sluice.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "sluice.labels" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* Of (root, component). */ -}}
{{- define "sluice.selector" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- /* Of (root, component, and kind and name of the object's apiVersion). */ -}}
{{- define "sluice.metadata" -}}
name: {{ include "sluice.name" .root }}-{{ .component }}
labels:
  {{- include "sluice.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- /* Of (root, image). */ -}}
{{- define "sluice.image" -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{- /* The account of both images. */ -}}
{{- define "sluice.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "sluice.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Who may read which file, as docs/operations.md has it. */ -}}
{{- define "sluice.secrets" -}}
setup: [postgres-owner, postgres-app, postgres-gateway]
gateway: [postgres-gateway, redis, key-pepper, cache-salt, playground-token, content-key, metrics-token]
web: [postgres-app, redis, django, key-pepper, playground-token, content-key, factor-key, connection-key, webhook-key, operator-token, metrics-token]
worker: [postgres-app, redis, webhook-key]
beat: [redis]
connector: [postgres-app, key-pepper, connection-key]
{{- end }}

{{- /* Secrets that an earlier value counts beside while they are replaced, in the key NAME.before. */ -}}
{{- define "sluice.replaced" -}}
[django, key-pepper, content-key, factor-key, connection-key, webhook-key]
{{- end }}

{{- /* Of (root, component): settings of a process of the server image. */ -}}
{{- define "sluice.environment" -}}
{{- $root := .root -}}
{{- $web := printf "%s-web" (include "sluice.name" $root) -}}
{{- $own := index $root.Values .component -}}
{{- $scheme := ternary "https" "http" $root.Values.ingress.enabled -}}
{{- $url := printf "%s://%s" $scheme $root.Values.host -}}
{{- $hosts := printf "%s,localhost,%s,%s.%s,%s.%s.svc,$(POD_IP)" $root.Values.host $web $web $root.Release.Namespace $web $root.Release.Namespace -}}
{{- $told := dict
  "SLUICE_ROLE" .component
  "SLUICE_SECRETS" "/run/secrets/sluice"
  "SLUICE_EXPORTS" "/exports"
  "DATABASE_URL" $root.Values.database.url
  "REDIS_URL" $root.Values.redis.url
  "SLUICE_TRUSTED_PROXIES" (join "," $root.Values.trustedProxies)
  "SLUICE_HTTPS" (toString $root.Values.ingress.enabled)
  "SLUICE_ALLOWED_HOSTS" $hosts
  "SLUICE_GATEWAY_URL" $url
  "SLUICE_PAGES_URL" $url
  "SLUICE_TRUSTED_ORIGINS" $url
-}}
{{- if eq .component "gateway" }}
{{- $_ := set $told "SLUICE_ADVERTISE_URL" "ws://$(POD_IP):8000/fleet" }}
{{- end -}}
{{- $told = mergeOverwrite $told $root.Values.environment (default (dict) $own.environment) -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- range $name, $value := $told }}
- {name: {{ $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end }}

{{- /* Of (root, component): what all containers of a process of the server image have. */ -}}
{{- define "sluice.container" -}}
image: {{ include "sluice.image" (dict "root" .root "image" .root.Values.image) }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  {{- include "sluice.containerSecurity" . | nindent 2 }}
env:
  {{- include "sluice.environment" . | nindent 2 }}
resources:
  {{- index .root.Values .component "resources" | toYaml | nindent 2 }}
volumeMounts:
  - {name: secrets, mountPath: /run/secrets/sluice, readOnly: true}
  - {name: data, mountPath: /data}
  - {name: tmp, mountPath: /tmp}
  {{- if has .component (list "web" "worker") }}
  - {name: exports, mountPath: /exports}
  {{- end }}
{{- end }}

{{- /* Of (root, component): what pods of the server image have besides containers. */ -}}
{{- define "sluice.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- include "sluice.podSecurity" . | nindent 2 }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  {{- $names := index (include "sluice.secrets" . | fromYaml) .component }}
  {{- $before := list }}
  {{- range include "sluice.replaced" . | fromYamlArray }}
  {{- if has . $names }}
  {{- $before = append $before (printf "%s.before" .) }}
  {{- end }}
  {{- end }}
  - name: secrets
    projected:
      defaultMode: 0440
      sources:
        - secret:
            name: {{ .root.Values.existingSecret }}
            items:
              {{- range $names }}
              - {key: {{ . }}, path: {{ . }}}
              {{- end }}
        {{- /* Without items it would be given all. */ -}}
        {{- if $before }}
        # Earlier values, of those that have one.
        - secret:
            name: {{ .root.Values.existingSecret }}
            optional: true
            items:
              {{- range $before }}
              - {key: {{ . }}, path: {{ . }}}
              {{- end }}
        {{- end }}
  - {name: data, emptyDir: {}}
  - {name: tmp, emptyDir: {}}
  {{- if has .component (list "web" "worker") }}
  - name: exports
    persistentVolumeClaim: {claimName: {{ .root.Values.exports.existingClaim | default (printf "%s-exports" (include "sluice.name" .root)) }}}
  {{- end }}
{{- end }}

{{- define "sluice.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "sluice.selector" . | nindent 8 }}
{{- end }}

{{- define "sluice.probes" -}}
startupProbe:
  httpGet: {path: /startupz, port: http}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 90
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 2
# Until no balancer sends it anything more; the process itself says 503 to /readyz from then on.
lifecycle: {preStop: {exec: {command: [sleep, "5"]}}}
{{- end }}

{{- /* Of (root, name): a pool with its defaults. */ -}}
{{- define "sluice.pool" -}}
{{- mergeOverwrite (deepCopy .root.Values.poolDefaults) (deepCopy (default (dict) (index .root.Values.pools .name))) | toYaml -}}
{{- end }}
