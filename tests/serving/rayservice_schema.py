"""A JSON schema of the Kubernetes objects in ``deploy/kuberay``: the fields that are used there, and no others.

Names and values are those of KubeRay's ``ray.io/v1`` (1.7) and of Kubernetes 1.28, whose own definitions are larger.
A field that is misspelt, misplaced or of the wrong type fails; a new one is added here after a look into theirs.
"""

from typing import Any

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string", "minLength": 1}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_FLAG: Schema = {"type": "boolean"}
_TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
_NAME: Schema = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "maxLength": 63}
_QUANTITY: Schema = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(m|[kMGT]|[KMGT]i)?$"}
_PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}


def _object(required: str = "", **properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items, "minItems": 1}


def _one_of(*values: str) -> Schema:
    return {"enum": list(values)}


_QUANTITIES: Schema = {
    "type": "object",
    "propertyNames": {"enum": ["cpu", "memory", "storage", "nvidia.com/gpu"]},
    "additionalProperties": _QUANTITY,
}
_RESOURCES = _object("requests", requests=_QUANTITIES, limits=_QUANTITIES)
_SELECTOR = _object(matchLabels=_TEXTS)
_METADATA = _object("name labels", name=_NAME, labels=_TEXTS)

_CONTAINER_SECURITY = _object(
    allowPrivilegeEscalation=_FLAG,
    capabilities=_object(drop=_list(_TEXT)),
)
_POD_SECURITY = _object(
    runAsNonRoot=_FLAG,
    runAsUser=_COUNT,
    runAsGroup=_COUNT,
    fsGroup=_COUNT,
    seccompProfile=_object("type", type=_one_of("RuntimeDefault", "Unconfined", "Localhost")),
)
_PROBE = _object(
    "httpGet",
    httpGet=_object("path port", path={"type": "string", "pattern": "^/"}, port=_PORT),
    initialDelaySeconds=_COUNT,
    periodSeconds=_COUNT,
    timeoutSeconds=_COUNT,
    failureThreshold=_COUNT,
)
_SECRET_KEY = _object("name key", name=_NAME, key=_TEXT, optional=_FLAG)
_ENV: Schema = {
    **_object("name", name=_TEXT, value={"type": "string"}, valueFrom=_object(secretKeyRef=_SECRET_KEY)),
    "oneOf": [{"required": ["value"]}, {"required": ["valueFrom"]}],
}
_CONTAINER = _object(
    "name image resources",
    name=_NAME,
    image=_TEXT,
    imagePullPolicy=_one_of("Always", "IfNotPresent", "Never"),
    env=_list(_ENV),
    ports=_list(_object("containerPort", containerPort=_PORT, name={**_NAME, "maxLength": 15})),
    readinessProbe=_PROBE,
    livenessProbe=_PROBE,
    resources=_RESOURCES,
    securityContext=_CONTAINER_SECURITY,
    volumeMounts=_list(_object("name mountPath", name=_NAME, mountPath=_TEXT, readOnly=_FLAG)),
)
_VOLUME: Schema = {
    **_object(
        "name",
        name=_NAME,
        emptyDir=_object(medium=_one_of("Memory"), sizeLimit=_QUANTITY),
        persistentVolumeClaim=_object("claimName", claimName=_NAME, readOnly=_FLAG),
    ),
    "oneOf": [{"required": ["emptyDir"]}, {"required": ["persistentVolumeClaim"]}],
}
_POD = _object(
    "containers",
    restartPolicy=_one_of("Always", "OnFailure", "Never"),
    terminationGracePeriodSeconds=_COUNT,
    securityContext=_POD_SECURITY,
    topologySpreadConstraints=_list(
        _object(
            "maxSkew topologyKey whenUnsatisfiable",
            maxSkew={"type": "integer", "minimum": 1},
            topologyKey=_TEXT,
            whenUnsatisfiable=_one_of("DoNotSchedule", "ScheduleAnyway"),
            labelSelector=_SELECTOR,
        )
    ),
    tolerations=_list(
        _object(
            key=_TEXT,
            operator=_one_of("Exists", "Equal"),
            effect=_one_of("NoSchedule", "PreferNoSchedule", "NoExecute"),
        )
    ),
    containers=_list(_CONTAINER),
    volumes=_list(_VOLUME),
)
_TEMPLATE = _object("metadata spec", metadata=_object(labels=_TEXTS), spec=_POD)
_HEAD = _object("rayStartParams template", rayStartParams=_TEXTS, template=_TEMPLATE)
_WORKERS = _object(
    "groupName rayStartParams template minReplicas maxReplicas",
    groupName=_NAME,
    replicas=_COUNT,
    minReplicas=_COUNT,
    maxReplicas=_COUNT,
    rayStartParams=_TEXTS,
    template=_TEMPLATE,
)
_CLUSTER = _object(
    "rayVersion headGroupSpec",
    rayVersion={"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
    authOptions=_object("mode", mode=_one_of("token", "disabled")),
    enableInTreeAutoscaling=_FLAG,
    autoscalerOptions=_object(
        version=_one_of("v1", "v2"),
        upscalingMode=_one_of("Default", "Aggressive", "Conservative"),
        idleTimeoutSeconds=_COUNT,
        resources=_RESOURCES,
        securityContext=_CONTAINER_SECURITY,
    ),
    headGroupSpec=_HEAD,
    workerGroupSpecs=_list(_WORKERS),
)


def _manifest(api_version: str, kind: str, spec: Schema) -> Schema:
    return _object(
        "apiVersion kind metadata spec",
        apiVersion={"const": api_version},
        kind={"const": kind},
        metadata=_METADATA,
        spec=spec,
    )


SCHEMAS: dict[str, Schema] = {
    "RayService": _manifest(
        "ray.io/v1",
        "RayService",
        _object(
            "serveConfigV2 rayClusterConfig",
            upgradeStrategy=_object(type=_one_of("NewCluster", "NewClusterWithIncrementalUpgrade", "None")),
            rayClusterDeletionDelaySeconds=_COUNT,
            excludeHeadPodFromServeSvc=_FLAG,
            serveConfigV2=_TEXT,
            rayClusterConfig=_CLUSTER,
        ),
    ),
    "PersistentVolumeClaim": _manifest(
        "v1",
        "PersistentVolumeClaim",
        _object(
            "accessModes resources",
            accessModes=_list(_one_of("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")),
            resources=_RESOURCES,
        ),
    ),
    "PodDisruptionBudget": _manifest(
        "policy/v1", "PodDisruptionBudget", _object("selector minAvailable", minAvailable=_COUNT, selector=_SELECTOR)
    ),
    "NetworkPolicy": _manifest(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        _object(
            "podSelector policyTypes",
            podSelector=_SELECTOR,
            policyTypes=_list(_one_of("Ingress", "Egress")),
            ingress=_list(
                {
                    "type": "object",
                    "properties": {
                        "ports": _list(_object("port", port=_PORT)),
                        "from": _list(_object(podSelector=_SELECTOR, namespaceSelector=_SELECTOR)),
                    },
                    "additionalProperties": False,
                }
            ),
        ),
    ),
}
