{{- /* The beginning of all names. The name of a CronJob has at most 52 characters. */ -}}
{{- define "txnscan.name" -}}
{{- $name := ternary .Release.Name (printf "%s-txnscan" .Release.Name) (contains "txnscan" .Release.Name) -}}
{{- $name | trunc 42 | trimSuffix "-" -}}
{{- end -}}

{{- define "txnscan.selector" -}}
app.kubernetes.io/name: txnscan
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "txnscan.labels" -}}
{{ include "txnscan.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "txnscan.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "txnscan.name" .) -}}
{{- end -}}

{{- /* clusters.toml. JSON texts, whole numbers and lists of texts are TOML too. */ -}}
{{- define "txnscan.clusters" -}}
{{- range $name, $cluster := .Values.clusters -}}
[clusters.{{ toJson $name }}]
{{ range $key, $value := $cluster -}}
{{ $key }} = {{ toJson $value }}
{{ end }}
{{ end -}}
{{- range .Values.notify -}}
[[notify]]
{{ range $key, $value := . -}}
{{ $key }} = {{ toJson $value }}
{{ end }}
{{ end -}}
{{- end -}}

{{- /*
The spec of a pod with one container. Arguments: root, component, args; config: mounts clusters.toml and the Secrets;
tables: mounts the volume of the tables; container: more fields of the container; pod: more fields of the pod.
*/ -}}
{{- define "txnscan.pod" -}}
{{- $values := .root.Values -}}
{{- $name := include "txnscan.name" .root -}}
{{- $volume := and .tables (hasPrefix "/" $values.tables.location) -}}
{{- with merge dict (.pod | default dict) $values.podSpec -}}
{{ toYaml . }}
{{ end -}}
serviceAccountName: {{ include "txnscan.serviceAccount" .root | quote }}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
containers:
  - name: {{ .component }}
    {{- with $values.image }}
    {{- $tag := printf ":%s" (.tag | default $.root.Chart.AppVersion) }}
    image: {{ printf "%s%s" .repository (.digest | empty | ternary $tag (printf "@%s" .digest)) | quote }}
    imagePullPolicy: {{ .pullPolicy }}
    {{- end }}
    args:
      {{- toYaml .args | nindent 6 }}
    {{- with .container }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with $values.env }}
    env:
      {{- range $key, $value := . }}
      - name: {{ $key }}
        value: {{ $value | quote }}
      {{- end }}
    {{- end }}
    {{- with $values.envSecrets }}
    envFrom:
      {{- range . }}
      - secretRef:
          name: {{ . | quote }}
      {{- end }}
    {{- end }}
    resources:
      {{- toYaml (get $values .component).resources | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
    volumeMounts:
      - name: scratch
        mountPath: /tmp
      {{- if $volume }}
      - name: tables
        mountPath: /data
      {{- end }}
      {{- if .config }}
      - name: clusters
        mountPath: /etc/txnscan/clusters.toml
        subPath: clusters.toml
        readOnly: true
      {{- range $number, $secret := $values.secrets }}
      - name: secret-{{ $number }}
        mountPath: /etc/txnscan/secrets/{{ $secret }}
        readOnly: true
      {{- end }}
      {{- end }}
volumes:
  - name: scratch
    emptyDir: {}
  {{- if $volume }}
  - name: tables
    persistentVolumeClaim:
      claimName: {{ $values.tables.existingClaim | default (printf "%s-tables" $name) | quote }}
  {{- end }}
  {{- if .config }}
  - name: clusters
    configMap:
      name: {{ $name }}-clusters
  {{- range $number, $secret := $values.secrets }}
  - name: secret-{{ $number }}
    secret:
      secretName: {{ $secret | quote }}
      defaultMode: 0440
  {{- end }}
  {{- end }}
{{- end -}}
