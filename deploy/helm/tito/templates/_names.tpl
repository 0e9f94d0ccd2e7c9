{{- define "tito.name" -}}
{{- if contains "tito" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-tito{{ end }}
{{- end }}

{{- define "tito.selector" -}}
app.kubernetes.io/name: tito
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tito.labels" -}}
{{ include "tito.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
