{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "latchwork.labels" -}}
app.kubernetes.io/name: latchwork
app.kubernetes.io/instance: {{ .release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end -}}

{{- define "latchwork.name" -}}
{{ printf "%s-%s" .release.Name .name | trunc 52 | trimSuffix "-" }}
{{- end -}}

{{/* Whether the chart makes the token that reads: "true", or nothing if the configuration has http.read_tokens */}}
{{- define "latchwork.token" -}}
{{- if not (.consumer.config.http | default dict).read_tokens }}true{{ end -}}
{{- end -}}

{{/* The configuration file. The chart sets the ports, the token that reads, and in a StatefulSet the member's name, unless they are set. */}}
{{- define "latchwork.config" -}}
{{- $given := deepCopy .consumer.config -}}
{{- $http := dict "listen" "0.0.0.0:9464" "health_listen" "0.0.0.0:9465" -}}
{{- if include "latchwork.token" . -}}
{{- $_ := set $http "read_tokens" (dict "chart" "${LATCHWORK_READ_TOKEN}") -}}
{{- end -}}
{{- $ours := dict "http" $http -}}
{{- if eq .consumer.kind "StatefulSet" -}}
{{- $_ := set $ours "kafka" (dict "member_id" "${POD_NAME}") -}}
{{- end -}}
{{- mergeOverwrite $ours $given | toPrettyJson -}}
{{- end -}}

{{/* shutdown.grace_ms, rounded up to seconds, plus 10 s in which the supervisor ends what is left */}}
{{- define "latchwork.grace" -}}
{{- $shutdown := .consumer.config.shutdown | default dict -}}
{{- $ms := $shutdown.grace_ms | default 30000 | int -}}
{{- add (div (add $ms 999) 1000) 10 -}}
{{- end -}}

{{/* What the configuration means by its defaults: two workers, and a consumer group that is called as the application */}}
{{- define "latchwork.workers" -}}
{{- .consumer.config.workers | default 2 | int -}}
{{- end -}}

{{- define "latchwork.group" -}}
{{- $kafka := .consumer.config.kafka | default dict -}}
{{- get ($kafka.properties | default dict) "group.id" | default .consumer.config.name -}}
{{- end -}}

{{- define "latchwork.pod" -}}
metadata:
  labels:
    {{- include "latchwork.labels" . | nindent 4 }}
    {{- with .consumer.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations:
    checksum/config: {{ include "latchwork.config" . | sha256sum }}
    {{- with .consumer.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  terminationGracePeriodSeconds: {{ include "latchwork.grace" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with .consumer.serviceAccountName }}
  serviceAccountName: {{ . }}
  {{- end }}
  {{- with .consumer.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .values.image.pullSecrets }}
  imagePullSecrets: {{ toYaml . | nindent 4 }}
  {{- end }}
  securityContext: {{ toYaml .values.podSecurityContext | nindent 4 }}
  {{- if .consumer.topologySpread }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{ include "latchwork.labels" . | nindent 10 }}
  {{- end }}
  {{- with .consumer.nodeSelector }}
  nodeSelector: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with .consumer.tolerations }}
  tolerations: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with .consumer.affinity }}
  affinity: {{ toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: latchwork
      {{- $image := mergeOverwrite (deepCopy .values.image) (.consumer.image | default dict) }}
      image: "{{ $image.repository }}:{{ $image.tag | default .chart.AppVersion }}"
      imagePullPolicy: {{ $image.pullPolicy }}
      args: ["run", "-c", "/etc/latchwork/latchwork.json"]
      securityContext: {{ toYaml .values.securityContext | nindent 8 }}
      env:
        - name: POD_NAME
          valueFrom: { fieldRef: { fieldPath: metadata.name } }
        {{- with .consumer.env }}{{ toYaml . | nindent 8 }}{{ end }}
      {{- if or .consumer.secretName (include "latchwork.token" .) }}
      envFrom:
        {{- if include "latchwork.token" . }}
        - secretRef: { name: {{ include "latchwork.name" . }}-http }
        {{- end }}
        {{- with .consumer.secretName }}
        - secretRef: { name: {{ . }} }
        {{- end }}
      {{- end }}
      ports:
        - { name: http, containerPort: 9464 }
        - { name: health, containerPort: 9465 }
      # The probes ask whether the main loops turn. They do not ask for Redis or Kafka (/readyz does): a restart would not bring those
      # back, and pods that are not ready would stop a rollout that may mend them.
      startupProbe:
        httpGet: { path: /healthz, port: health }
        periodSeconds: 2
        failureThreshold: 30
      livenessProbe:
        httpGet: { path: /healthz, port: health }
        periodSeconds: 20
        timeoutSeconds: 5
        failureThreshold: 3
      readinessProbe:
        httpGet: { path: /healthz, port: health }
        periodSeconds: 10
        timeoutSeconds: 5
      resources: {{ toYaml .consumer.resources | nindent 8 }}
      volumeMounts:
        - { name: config, mountPath: /etc/latchwork, readOnly: true }
        - { name: tmp, mountPath: /tmp }
        {{- with .consumer.volumeMounts }}{{ toYaml . | nindent 8 }}{{ end }}
  volumes:
    - name: config
      configMap: { name: {{ include "latchwork.name" . }} }
    - name: tmp
      emptyDir: {}
    {{- with .consumer.volumes }}{{ toYaml . | nindent 4 }}{{ end }}
{{- end -}}
