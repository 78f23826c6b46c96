"""How products of matrices, sums and copies are written."""

from __future__ import annotations

from attnctl.drawing.show.program.ops.writing import Writing, writes
from attnctl.math import ops
from attnctl.math.ops import base, models, norms, products, vectors


@writes(ops.MatMulT)
def matmul_t(w: Writing) -> str:
    a, b = w.names
    b_transposed = w.library.transposed(b)
    return w.product(f"{a} @ {b_transposed}")


@writes(ops.MatMul)
def matmul(w: Writing) -> str:
    a, b, *bias = w.names
    product = w.product(f"{a} @ {b}")
    return " + ".join([product, *bias])


@writes(vectors.Project)
def project(w: Writing) -> str:
    x, matrix, *bias = w.names
    has_members = len(w.shapes[0]) > 2
    rows = f"{x}[:, None]" if has_members else x
    product = w.product(f"{rows} @ {matrix}")
    added = [f"{each}[:, None]" for each in bias]
    return " + ".join([product, *added])


@writes(products.TMatMul)
def t_matmul(w: Writing) -> str:
    a, b = w.names
    return w.product(f"{w.library.transposed(a)} @ {b}")


@writes(products.SharedTMatMul, vectors.ProjectWeights)
def shared_t_matmul(w: Writing) -> str:
    a, b = w.names
    if len(w.shapes[0]) > 2:  # summed over members, too
        return w.einsum()
    return w.product(f"{w.library.transposed(a)} @ {b}")


@writes(vectors.ProjectBack)
def project_back(w: Writing) -> str:
    d, matrix = w.names
    each = f"({d} @ {w.library.transposed(matrix)})"
    return w.product(w.library.reduce("sum", each, -3))


@writes(products.SumRows, products.SumTokens, norms.SumProducts, norms.SumProductsOfHeads)
def sum_rows(w: Writing) -> str:
    (first, *_), gives = w.spread_axes()
    summed = tuple(place for place, axis in enumerate(first) if axis not in gives)
    over = summed[0] if len(summed) == 1 else summed
    factors = " * ".join(w.names)
    x = f"({factors})" if len(w.names) > 1 else factors
    return w.product(w.library.reduce("sum", x, over))


@writes(products.RowDot)
def row_dot(w: Writing) -> str:
    a, b = w.names
    return w.product(w.library.reduce("sum", f"({a} * {b})", -1))


# --- sums, copies ---


@writes(base.Copy, vectors.Rows)
def copy(w: Writing) -> str:
    if isinstance(w.op, base.Copy):
        return w.x
    count = w.shapes[1][-2]
    first = w.shapes[0][-2] - count if w.op.last else 0
    return f"{w.x}[..., {first}:{first + count}, :]"


@writes(base.Add)
def add(w: Writing) -> str:
    a, b = w.names
    return f"{a} + {b}"


@writes(models.AddScaled)
def add_scaled(w: Writing) -> str:
    a, b = w.names
    return f"{a} + {w.op.factor!r} * {b}"


@writes(base.AddAll)
def add_all(w: Writing) -> str:
    return " + ".join(w.names)


@writes(base.SumLike)
def sum_like(w: Writing) -> str:
    d, like = w.shapes
    before = len(d) - len(like)
    summed = []
    for axis, size in enumerate(d):
        is_spread = axis >= before and like[axis - before] == 1 and size > 1
        if axis < before or is_spread:
            summed.append(axis)
    if not summed:
        return w.x

    total = w.library.reduce("sum", w.x, tuple(summed), keep=True)
    return w.library.reshaped(total, like) if before else total


@writes(norms.ScaleColumns)
def scale_columns(w: Writing) -> str:
    x, factors = w.names
    return f"{x} * {factors}"


@writes(norms.ScaleHeads)
def scale_heads(w: Writing) -> str:
    x, factors = w.names
    return f"{x} * {factors}[:, None, None]"
