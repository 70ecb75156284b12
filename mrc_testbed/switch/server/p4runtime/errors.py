"""Errors of the P4Runtime server: what a handler raises, and how it reaches the client."""

from __future__ import annotations

from typing import Any, NoReturn

import grpc
from finsy.proto import p4r, rpc_code, rpc_status
from google.protobuf import any_pb2

STATUS_DETAILS = "grpc-status-details-bin"
DETAILS_MAX_BYTES = 40 << 10
"""Longest google.rpc.Status sent as trailing metadata, bytes.

Clients take 8 KiB (gRPC's default) to 64 KiB (finsy).
"""

_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


class RpcError(Exception):
    """Ends an RPC, or a stream, with this google.rpc code and text."""

    def __init__(self, code: rpc_code.Code.ValueType, text: str) -> None:
        super().__init__(text)
        self.code = code


def code_of(name: str) -> rpc_code.Code.ValueType:
    """google.rpc code by the name of a gRPC status, as TableError carries it."""
    return rpc_code.Code.Value(name)


def status_code(code: int) -> grpc.StatusCode:
    """The gRPC status of a google.rpc code."""
    return _STATUS_CODES.get(code, grpc.StatusCode.UNKNOWN)


async def abort(context: Any, error: RpcError) -> NoReturn:
    """End a call with the code and text of `error`."""
    await context.abort(status_code(error.code), str(error))
    raise AssertionError("abort returned")


async def abort_batch(context: Any, errors: list[RpcError | None], part_name: str) -> NoReturn:
    """End a Write or Read of which some parts failed: those where `errors` is not None.

    The code is UNKNOWN, with a p4.v1.Error for each part (P4Runtime §12.3). When these details are longer than clients
    take, they are left out, as the text says. `part_name`: "update" or "entity".
    """
    failed = [(index, error) for index, error in enumerate(errors) if error is not None]
    index, first = next((failure for failure in failed if failure[1].code != rpc_code.ABORTED), failed[0])
    text = f"{len(failed)} of {len(errors)} {part_name}s failed; first: {part_name} {index}: {first}"
    status = rpc_status.Status(code=rpc_code.UNKNOWN, message=text)
    for error in errors:
        detail = p4r.Error(canonical_code=rpc_code.OK)
        if error is not None:
            detail = p4r.Error(canonical_code=error.code, message=str(error))
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    status_bytes = status.SerializeToString()
    if len(status_bytes) > DETAILS_MAX_BYTES:
        text += f" ({rpc_code.Code.Name(first.code)}; too many {part_name}s to detail: send smaller batches)"
        await context.abort(grpc.StatusCode.UNKNOWN, text)
    await context.abort(grpc.StatusCode.UNKNOWN, text, ((STATUS_DETAILS, status_bytes),))
    raise AssertionError("abort returned")
