"""The only file that touches ministack's private names; run as ministack's process.

    python -P adapter.py --port 4600 --nodes /path/nodes --declared /path/declared.json
    python -P adapter.py --check

It adds what a rehearsal needs: CloudFormation types, instances and volumes with EC2's semantics, commands that run in
the nodes, and what IAM evaluation misses. Every private name is checked first; one that moved ends the process with
its name. The process ends with its parent: its standard input is a pipe that the parent holds open.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import inspect
import json
import os
import signal
import sys
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

sys.path.append(str(Path(__file__).resolve().parents[3]))  # at the end: ministack's own libraries come first

from slurm_cluster.rehearsal.cloud import (
    authorization,
    images,
    instance_types,
    instances,
    invocations,
    launches,
    network_types,
    ssm_agents,
    volumes,
)
from slurm_cluster.rehearsal.cloud.compute_types import COMPUTE_TYPES
from slurm_cluster.rehearsal.cloud.declared import Declared
from slurm_cluster.rehearsal.cloud.emulator import (
    Action,
    ApiError,
    Emulator,
    Profile,
    flat,
    nested,
    single_values,
    tree,
    xml,
)
from slurm_cluster.rehearsal.cloud.existing_types import EXISTING_TYPES
from slurm_cluster.rehearsal.cloud.provisioning import Provisioning

VERSION = "1.5.33"

_SERVICES = "ministack.services"
_EC2, _SSM, _IAM, _ROUTE53 = (f"{_SERVICES}.{name}" for name in ("ec2", "ssm", "iam", "route53"))
_PROVISIONERS, _STACKS, _CUSTOM_RESOURCE = (
    f"{_SERVICES}.cloudformation.{name}" for name in ("provisioners", "stacks", "custom_resource")
)
_LAMBDA = f"{_SERVICES}.lambda_svc"
_EVALUATOR, _IAM_ACTIONS, _RESPONSES = (
    f"ministack.core.{name}" for name in ("iam_evaluator", "iam_actions", "responses")
)
_EC2_STORES = (
    *("_instances", "_volumes", "_subnets", "_security_groups", "_images", "_launch_templates", "_addresses"),
    *("_nat_gateways", "_flow_logs", "_tags"),
)

Shape = type | tuple[str, ...]
PRIVATE_NAMES: dict[str, dict[str, Shape]] = {
    "ministack.app": {"AUTH": bool, "main": (), "pin_request_origin": ("source_ip", "secure_transport")},
    _EC2: {
        **dict.fromkeys(_EC2_STORES, MutableMapping),
        "_ACTION_MAP": dict,
        "_docker_touched": (),
        "_error": ("code", "message", "status"),
        "_xml": ("status", "root_tag", "inner"),
        "instance_is_managed": ("instance_id",),
    },
    _SSM: {
        "_PUBLIC_AMI_PARAMETERS": dict,
        "_commands": MutableMapping,
        "_describe_instance_information": ("data",),
        "_finish_invocation": ("command_id", "instance_id", "argv"),
        "_now_iso": (),
        "_refresh_command_status": ("record",),
        "_send_command": ("data",),
        "handle_request": ("method", "path", "headers", "body", "query_params"),
    },
    _IAM: {"_lookup_instance_profile": ("name", "arn")},
    _ROUTE53: {"_zones": MutableMapping},
    _PROVISIONERS: {"_REPLACING_PROPERTIES": dict, "_RESOURCE_HANDLERS": dict, "_STACK_TAG_PROPERTY": dict},
    _CUSTOM_RESOURCE: {"invoke_custom_resource": ("request_type", "logical_id", "props", "stack_name", "stack_id")},
    _LAMBDA: {
        "_execute_function_with_config_scope": ("func", "event"),
        "invoke_async_with_retry": ("func", "event"),
    },
    _STACKS: {"_runs_on_worker_thread": ("resource_type",)},
    _EVALUATOR: {
        "EvalContext": type,
        "EvalResult": type,
        "_gather_role_policies": ("role_name", "account_id"),
        "enforce": ("access_key_id", "iam_action", "service", "region", "resource_arn", "service_context"),
        "evaluate": ("ctx", "policies", "limits"),
        "is_root_access_key": ("access_key_id",),
        "pin_request_origin": ("source_ip", "secure_transport"),
    },
    _IAM_ACTIONS: {
        "extract_iam_action": ("service", "method", "path", "headers", "body", "query_params"),
        "extract_resource_arn": (
            *("service", "method", "path", "headers", "body", "query_params", "region", "account_id"),
        ),
    },
    _RESPONSES: {
        "error_response_json": ("code", "message", "status", "extra"),
        "get_account_id": (),
        "get_region": (),
        "json_response": ("data", "status"),
    },
}
"""Every name used below with its shape: a class its value is of, or the parameters that a function begins with."""


def problems(load: Callable[[str], Any] = importlib.import_module) -> list[str]:
    """Return what is not as this adapter needs it, one line a name; empty when all is well."""
    found = []
    installed = importlib.metadata.version("ministack")
    if installed != VERSION:
        found.append(f"ministack is {installed}, this adapter was written for {VERSION}")
    for module_name, names in PRIVATE_NAMES.items():
        module = load(module_name)
        for name, shape in names.items():
            if not hasattr(module, name):
                found.append(f"{module_name}.{name} is missing")
                continue
            value = getattr(module, name)
            if isinstance(shape, tuple):
                parameters = tuple(inspect.signature(value).parameters) if callable(value) else ()
                if not callable(value) or parameters[: len(shape)] != shape:
                    found.append(f"{module_name}.{name} takes {parameters}, expected {shape}")
            elif not (isinstance(value, shape) or (shape is MutableMapping and hasattr(value, "setdefault"))):
                found.append(f"{module_name}.{name} is a {type(value).__name__}, expected a {shape.__name__}")
    return found


class Adapter:
    """ministack with the rehearsal's parts in it.

    Args:
        nodes: see Emulator.
        declared: file that keeps the resolved properties of each provisioned resource.
    """

    def __init__(self, nodes: Path, declared: Path) -> None:
        modules: dict[str, Any] = {name: importlib.import_module(name) for name in PRIVATE_NAMES}
        self.app = modules["ministack.app"]
        self.ec2, self.ssm, self.iam = modules[_EC2], modules[_SSM], modules[_IAM]
        self.provisioners, self.stacks = modules[_PROVISIONERS], modules[_STACKS]
        self.custom_resource, self.lambda_ = modules[_CUSTOM_RESOURCE], modules[_LAMBDA]
        self.evaluator, self.iam_actions, self.responses = (
            modules[_EVALUATOR],
            modules[_IAM_ACTIONS],
            modules[_RESPONSES],
        )
        self.emulator = Emulator(
            nodes=nodes,
            **{name.lstrip("_"): getattr(self.ec2, name) for name in _EC2_STORES},
            hosted_zones=modules[_ROUTE53]._zones,
            call=self._call,
            profile=self._profile,
            role_allows=self._role_allows,
            region=self.responses.get_region,
            account=self.responses.get_account_id,
            public_parameters=self.ssm._PUBLIC_AMI_PARAMETERS,
        )
        self._cancelled: set[str] = set()
        self._provisioning = Provisioning(self.emulator, Declared(declared))

    def install(self) -> None:
        """Put everything in place."""
        images.seed(self.emulator)
        self._install_ec2()
        self._install_types()
        self._install_custom_resources()
        self._install_run_command()
        self._install_authorization()

    # EC2

    def _install_ec2(self) -> None:
        actions: dict[str, Action] = {
            "AttachVolume": volumes.attach_volume,
            "CreateVolume": volumes.create_volume,
            "DeleteVolume": volumes.delete_volume,
            "DescribeFlowLogs": network_types.describe_flow_logs,
            "DescribeInstanceAttribute": instances.describe_instance_attribute,
            "DescribeInstanceTypes": instance_types.describe_instance_types,
            "DescribeInstances": instances.describe_instances,
            "DescribeNatGateways": network_types.describe_nat_gateways,
            "DescribeVolumes": volumes.describe_volumes,
            "DetachVolume": volumes.detach_volume,
            "GetConsoleOutput": instances.get_console_output,
            "RebootInstances": instances.reboot_instances,
            "RunInstances": launches.run_instances,
            "StartInstances": instances.start_instances,
            "StopInstances": instances.stop_instances,
            "TerminateInstances": instances.terminate_instances,
        }
        for name, action in actions.items():
            self.ec2._ACTION_MAP[name] = self._served(name, action)
        self.ec2._docker_touched = lambda: False  # machines are systemd-nspawn's, whatever image is registered

    def _served(self, name: str, action: Action) -> Callable[[Mapping[str, Any]], Any]:
        def serve(query: Mapping[str, Any]) -> Any:
            try:
                answer = action(self.emulator, nested(single_values(query)))
            except ApiError as error:
                return self.ec2._error(error.code, escape(error.message), 400)
            return self.ec2._xml(200, f"{name}Response", xml(answer))

        return serve

    def _call(self, action: str, parameters: Mapping[str, Any]) -> Any:
        query = {name: [value] for name, value in flat(parameters).items()}
        status, _, body = self.ec2._ACTION_MAP[action]({"Action": [action], **query})
        root = ElementTree.fromstring(body)  # noqa: S314  # written by this process
        answer = tree(root)
        if status >= 400:
            error = answer["Errors"][0] if isinstance(answer["Errors"], list) else answer["Errors"]["Error"]
            raise ApiError(error["Code"], error["Message"])
        return answer

    # CloudFormation

    def _install_types(self) -> None:
        handlers = self.provisioners._RESOURCE_HANDLERS
        for name in set(handlers) - set(EXISTING_TYPES):
            del handlers[name]  # CloudFormation then refuses a template with it, by name
        for name, existing in EXISTING_TYPES.items():
            if name != "AWS::CloudFormation::CustomResource":  # its properties are its Lambda function's affair
                handlers[name] = self._provisioning.guarded(name, existing, handlers[name])
        for name, added in {**COMPUTE_TYPES, **network_types.NETWORK_TYPES}.items():
            handlers[name] = self._provisioning.added(name, added)
            self.provisioners._REPLACING_PROPERTIES[name] = added.replace_on
            if "Tags.*" in added.properties:
                self.provisioners._STACK_TAG_PROPERTY[name] = ("Tags", "list")
        waiting = {name for name, added in COMPUTE_TYPES.items() if added.waits}
        on_thread = self.stacks._runs_on_worker_thread
        self.stacks._runs_on_worker_thread = lambda kind: kind in waiting or on_thread(kind)

    def _install_custom_resources(self) -> None:
        invoke, execute = invocations.made_asynchronous(
            self.custom_resource.invoke_custom_resource,
            self.lambda_._execute_function_with_config_scope,
            self.lambda_.invoke_async_with_retry,
        )
        self.custom_resource.invoke_custom_resource = invoke
        self.lambda_._execute_function_with_config_scope = execute

    # Systems Manager

    def _install_run_command(self) -> None:
        send, error_response = self.ssm._send_command, self.responses.error_response_json

        def answered(function: Callable[[Mapping[str, Any]], Any], request: Mapping[str, Any]) -> Any:
            try:
                return function(request)
            except ApiError as error:
                return error_response(error.code, error.message, 400)

        def send_command(request: Mapping[str, Any]) -> Any:
            ssm_agents.check_command(request)
            return send(request)

        def information(request: Mapping[str, Any]) -> Any:
            return self.responses.json_response(ssm_agents.instance_information(self.emulator, request))

        dispatch = self.ssm.handle_request

        async def handle_request(method: str, path: str, headers: Any, body: bytes, query_params: Any) -> Any:
            if not headers.get("x-amz-target", "").endswith(".CancelCommand"):
                return await dispatch(method, path, headers, body, query_params)
            self._cancelled.add(json.loads(body)["CommandId"])
            return self.responses.json_response({})

        self.ssm.handle_request = handle_request
        self.ssm._send_command = lambda request: answered(send_command, request)
        self.ssm._describe_instance_information = lambda request: answered(information, request)
        self.ssm._finish_invocation = self._finish_invocation
        self.ec2.instance_is_managed = lambda instance_id: ssm_agents.is_managed(self.emulator, instance_id)

    def _finish_invocation(self, command_id: str, instance_id: str, argv: Sequence[str]) -> None:
        del argv  # ministack's form of the script, without its time limit
        record = self.ssm._commands[command_id]
        ssm_agents.carry_out(self.emulator, record, instance_id, self.ssm._now_iso, self._cancelled)
        self.ssm._refresh_command_status(record)

    # IAM

    def _profile(self, name_or_arn: str) -> Profile | None:
        key = "arn" if name_or_arn.startswith("arn:") else "name"
        found = self.iam._lookup_instance_profile(**{key: name_or_arn})
        if found is None:
            return None
        roles = found["Roles"]
        return Profile(arn=found["Arn"], id=found["InstanceProfileId"], role=roles[0] if roles else None)

    def _role_allows(self, role: str, action: str, resource: str) -> bool:
        account = self.emulator.account()
        context = self.evaluator.EvalContext(
            principal_arn=f"arn:aws:sts::{account}:assumed-role/{role}/agent",
            principal_type="AssumedRole",
            principal_account=account,
            action=action,
            resource_arn=resource,
            region=self.emulator.region(),
        )
        policies = self.evaluator._gather_role_policies(role, account)
        return bool(self.evaluator.evaluate(context, policies).decision == "Allow")

    def _install_authorization(self) -> None:
        pin, extract = self.evaluator.pin_request_origin, self.iam_actions.extract_resource_arn
        enforce, is_root = self.evaluator.enforce, self.evaluator.is_root_access_key
        pending: ContextVar[list[authorization.Target] | None] = ContextVar("targets", default=None)

        def extract_resource_arn(
            service: str, method: str, path: str, headers: Any, body: bytes, query: Any, *place: str
        ) -> str:
            action = self.iam_actions.extract_iam_action(service, method, path, headers, body, query)
            found = authorization.targets(self.emulator, action or "", single_values(query), body)
            pending.set(found)
            return found[0].arn if found else str(extract(service, method, path, headers, body, query, *place))

        def checked(
            key: str, action: str, service: str, region: str, resource_arn: str = "*", service_context: Any = None
        ) -> Any:
            found = pending.get()
            pending.set(None)
            if found is None or is_root(key):
                return enforce(key, action, service, region, resource_arn, service_context)
            if not found:
                return self.evaluator.EvalResult("ImplicitDeny", reason=f"{action} by a role is not rehearsed")
            denials = (
                enforce(key, action, service, region, target.arn, {**(service_context or {}), **target.context})
                for target in found
            )
            return next((denial for denial in denials if denial is not None), None)

        # AWS's end points are TLS; nodes and CLI reach this one over loopback without it
        self.app.pin_request_origin = lambda source_ip, secure_transport: pin(source_ip, True)
        self.iam_actions.extract_resource_arn = extract_resource_arn
        self.evaluator.enforce = checked


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main() -> int:
    """Run ministack until the parent ends; with ``--check`` only say whether this adapter fits it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="check ministack's private names and end")
    parser.add_argument("--port", type=int)
    parser.add_argument("--nodes", type=Path)
    parser.add_argument("--declared", type=Path)
    arguments = parser.parse_args()
    os.environ |= {
        "AUTH": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(arguments.port or ""),
        "LAMBDA_EXECUTOR": "local",
    }
    found = problems()
    if found:
        print("ministack does not fit slurm_cluster/rehearsal/cloud/adapter.py:", *found, sep="\n  ", file=sys.stderr)
        return 1
    if arguments.check:
        print(json.dumps({"ministack": VERSION, "private_names": sum(map(len, PRIVATE_NAMES.values()))}))
        return 0
    threading.Thread(target=_end_with_parent, daemon=True).start()
    adapter = Adapter(arguments.nodes, arguments.declared)
    adapter.install()
    sys.argv = ["ministack"]
    adapter.app.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
