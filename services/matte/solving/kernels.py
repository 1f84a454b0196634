"""The compiled inside of the CPU solver: one level of a picture, a band of rows at a time.

What is solved stands in `schedule`. Here is how it is made fast:

- Even and odd pixels of a row lie apart ("lanes"), so that those of one colour of the chessboard
  are contiguous and a half sweep is vector instructions throughout.
- All sweeps run in one pass over the rows. Half sweep j does row t - 1 - j when row t comes in: it
  then finds its neighbours exactly as far as half sweep j - 1 left them. Only a ring of rows is
  held, which stays in the cache; the finest level's colours go from there straight to bytes.
- A band or strip starts and ends as many pixels too far as there are half sweeps. What its cut has
  spoiled never reaches what it writes: the answer is the same bit for bit however it is cut.

Compiled without the GIL and without numba's own threads, whose default layer ends the process when
two threads use it at once. All kernels stand in this one file: numba's cache looks at no other.
"""

from typing import Any

import numpy as np

from services.matte.solving.compiling import kernel, loop

f4 = np.float32
u4 = np.uintp

BYTE = f4(1 / 255)
LEAD = 16
"""Before the first pixel of a lane: one for a neighbour, the rest for alignment."""
STRIP_COLUMNS = 512
"""The ring of a strip this wide stays in the second level's cache."""
LANES = 36
"""Lanes of a row in the ring: twelve of colours, twenty-two of coefficients, two of alpha."""


@kernel
def _within(value: Any) -> Any:
    """The nearest number that a colour or an alpha can be."""
    return max(f4(0), min(f4(1), value))


@loop
def _relax(
    f: Any, b: Any, fl: Any, fr: Any, fu: Any, fd: Any, bl: Any, br: Any, bu: Any, bd: Any,
    stay: Any, left: Any, right: Any, up: Any, down: Any, a: Any, va: Any, vb: Any, image: Any,
    count: int,
) -> None:  # fmt: skip
    """x <- m' + v r / (S / w + |v|^2), for one channel of one lane; weights hold w d / S."""
    for i in range(count):
        mf = stay[i] * f[i] + left[i] * fl[i] + right[i] * fr[i] + up[i] * fu[i] + down[i] * fd[i]
        mb = stay[i] * b[i] + left[i] * bl[i] + right[i] * br[i] + up[i] * bu[i] + down[i] * bd[i]
        r = image[i] - mb - a[i] * (mf - mb)
        f[i] = _within(mf + va[i] * r)
        b[i] = _within(mb + vb[i] * r)


@kernel
def _half_sweep(
    own: Any, beside: Any, above: Any, below: Any, k: Any, odd: int, count: int
) -> None:
    """One lane, all channels. Lanes are (6, P): three of F, three of B; coefficients (11, P)."""
    left, right = LEAD - 1 + odd, LEAD + odd
    for f in range(3):
        b = f + 3
        _relax(
            own[f, LEAD:], own[b, LEAD:],
            beside[f, left:], beside[f, right:], above[f, LEAD:], below[f, LEAD:],
            beside[b, left:], beside[b, right:], above[b, LEAD:], below[b, LEAD:],
            k[0, LEAD:], k[1, LEAD:], k[2, LEAD:], k[3, LEAD:], k[4, LEAD:],
            k[5, LEAD:], k[6, LEAD:], k[7, LEAD:], k[8 + f, LEAD:], count,
        )  # fmt: skip


@loop
def _keep_known(ff: Any, bb: Any, f: Any, b: Any, a: Any, image: Any, count: int) -> None:
    """One channel of one lane, to where neighbours do not see what is the picture's own."""
    for i in range(count):
        ff[i] = image[i] if a[i] == f4(1) else f[i]
        bb[i] = image[i] if a[i] == f4(0) else b[i]


@kernel
def _keep_known_row(out: Any, lanes: Any, k: Any) -> None:
    for p in range(2):
        for f in range(3):
            _keep_known(
                out[p, f], out[p, f + 3], lanes[p, f], lanes[p, f + 3], k[p, 5], k[p, 8 + f],
                lanes.shape[2],
            )  # fmt: skip


@loop
def _weigh(
    stay: Any, left: Any, right: Any, up: Any, down: Any, own: Any, va: Any, vb: Any,
    a: Any, al: Any, ar: Any, au: Any, ad: Any, count: int, relaxation: float, epsilon: float,
) -> None:  # fmt: skip
    """The coefficients of `_relax` from alpha and its neighbours."""
    for i in range(count):
        dl, dr = epsilon + abs(a[i] - al[i]), epsilon + abs(a[i] - ar[i])
        du, dd = epsilon + abs(a[i] - au[i]), epsilon + abs(a[i] - ad[i])
        s = dl + dr + du + dd
        w = relaxation / s
        rest = f4(1) - a[i]
        g = f4(1) / (s / relaxation + a[i] * a[i] + rest * rest)
        stay[i] = f4(1) - relaxation
        left[i], right[i], up[i], down[i] = dl * w, dr * w, du * w, dd * w
        own[i], va[i], vb[i] = a[i], a[i] * g, rest * g


@kernel
def _weigh_lane(
    k: Any, own: Any, beside: Any, above: Any, below: Any, odd: int, count: int,
    relaxation: float, epsilon: float,
) -> None:  # fmt: skip
    left, right = LEAD - 1 + odd, LEAD + odd
    _weigh(
        k[0, LEAD:], k[1, LEAD:], k[2, LEAD:], k[3, LEAD:], k[4, LEAD:], k[5, LEAD:], k[6, LEAD:],
        k[7, LEAD:], own[LEAD:], beside[left:], beside[right:], above[LEAD:], below[LEAD:],
        count, relaxation, epsilon,
    )  # fmt: skip


@kernel
def _to_itself(k: Any, which: int, first: int, last: int) -> None:
    """Where the picture ends, the neighbour is the pixel itself."""
    for i in range(LEAD + first, LEAD + last):
        k[0, i] += k[which, i]
        k[which, i] = f4(0)


@loop
def _split(even: Any, odd: Any, row: Any, step: int, columns: int, unit: float) -> None:
    """A row's every `step`-th value, times `unit` and within 0 and 1, into two lanes."""
    if step == 1:  # the vectoriser has to see the stride
        for i in range(columns // 2):
            even[i] = _within(f4(row[u4(2) * u4(i)]) * unit)
            odd[i] = _within(f4(row[u4(2) * u4(i) + u4(1)]) * unit)
    else:
        for i in range(columns // 2):
            even[i] = _within(f4(row[u4(2 * step) * u4(i)]) * unit)
            odd[i] = _within(f4(row[u4(2 * step) * u4(i) + u4(step)]) * unit)
    if columns & 1:
        even[columns // 2] = _within(f4(row[(columns - 1) * step]) * unit)


@loop
def _split_colours(
    e0: Any, e1: Any, e2: Any, o0: Any, o1: Any, o2: Any, row: Any, step: int, columns: int,
    unit: float,
) -> None:  # fmt: skip
    """The same for pixels of three values, into two lanes of each channel."""
    if step == 1:
        for i in range(columns // 2):
            j = u4(6) * u4(i)
            e0[i] = _within(f4(row[j]) * unit)
            e1[i] = _within(f4(row[j + u4(1)]) * unit)
            e2[i] = _within(f4(row[j + u4(2)]) * unit)
            o0[i] = _within(f4(row[j + u4(3)]) * unit)
            o1[i] = _within(f4(row[j + u4(4)]) * unit)
            o2[i] = _within(f4(row[j + u4(5)]) * unit)
    else:
        for i in range(columns // 2):
            j = u4(6 * step) * u4(i)
            e0[i] = _within(f4(row[j]) * unit)
            e1[i] = _within(f4(row[j + u4(1)]) * unit)
            e2[i] = _within(f4(row[j + u4(2)]) * unit)
            j += u4(3 * step)
            o0[i] = _within(f4(row[j]) * unit)
            o1[i] = _within(f4(row[j + u4(1)]) * unit)
            o2[i] = _within(f4(row[j + u4(2)]) * unit)
    if columns & 1:
        j = u4(3 * step) * u4(columns - 1)
        e0[columns // 2] = _within(f4(row[j]) * unit)
        e1[columns // 2] = _within(f4(row[j + u4(1)]) * unit)
        e2[columns // 2] = _within(f4(row[j + u4(2)]) * unit)


@loop
def _double(even: Any, odd: Any, upper: Any, lower: Any, evens: int) -> None:
    """A row between two of the coarser level, or on one given twice: pixels and what is between."""
    ends = min(evens, upper.shape[0] - 1)
    for i in range(ends):
        even[i] = f4(0.5) * (upper[i] + lower[i])
        odd[i] = f4(0.25) * (upper[i] + lower[i] + upper[i + 1] + lower[i + 1])
    for i in range(ends, evens):
        even[i] = f4(0.5) * (upper[i] + lower[i])
        odd[i] = even[i]


@loop
def _join(row: Any, even: Any, odd: Any, columns: int) -> None:
    """Two lanes into a row."""
    for i in range(columns // 2):
        row[u4(2) * u4(i)] = even[i]
        row[u4(2) * u4(i) + u4(1)] = odd[i]
    if columns & 1:
        row[columns - 1] = even[columns // 2]


@loop
def _to_bytes(out: Any, lane: Any, count: int) -> None:
    for i in range(count):
        out[i] = np.uint8(np.int32(lane[i] * f4(255) + f4(0.5)))


@loop
def _join_colours(
    row: Any, e0: Any, e1: Any, e2: Any, o0: Any, o1: Any, o2: Any, columns: int
) -> None:
    """Six lanes into a row of pixels of three."""
    for i in range(columns // 2):
        j = u4(6) * u4(i)
        row[j] = e0[i]
        row[j + u4(1)] = e1[i]
        row[j + u4(2)] = e2[i]
        row[j + u4(3)] = o0[i]
        row[j + u4(4)] = o1[i]
        row[j + u4(5)] = o2[i]
    if columns & 1:
        last = columns // 2
        row[3 * columns - 3] = e0[last]
        row[3 * columns - 2] = e1[last]
        row[3 * columns - 1] = e2[last]


@kernel
def _write_bytes(out: Any, lanes: Any, spare: Any, f: int, first: int, columns: int) -> None:
    """Three channels from `f` on, of the row's `columns` pixels from lane place `first` on."""
    count = (columns + 1) // 2
    for parity in range(2):
        for c in range(3):
            _to_bytes(spare[3 * parity + c], lanes[parity, f + c, first:], count)
    _join_colours(out, spare[0], spare[1], spare[2], spare[3], spare[4], spare[5], columns)


@kernel
def _take_alpha(alpha: Any, row: Any, step: int, columns: int, unit: float) -> None:
    """A row of alpha, and beyond its ends the last value once more."""
    _split(alpha[0, LEAD:], alpha[1, LEAD:], row, step, columns, unit)
    evens = (columns + 1) // 2
    alpha[1, LEAD - 1] = alpha[0, LEAD]
    if columns & 1:
        alpha[1, LEAD + evens - 1] = alpha[0, LEAD + evens - 1]
    else:
        alpha[0, LEAD + evens] = alpha[1, LEAD + evens - 1]


@kernel
def _take_colours(k: Any, row: Any, step: int, columns: int, unit: float) -> None:
    _split_colours(
        k[0, 8, LEAD:], k[0, 9, LEAD:], k[0, 10, LEAD:],
        k[1, 8, LEAD:], k[1, 9, LEAD:], k[1, 10, LEAD:], row, step, columns, unit,
    )  # fmt: skip


@kernel
def _double_row(lanes: Any, coarse: Any, t: int, x: int, evens: int) -> None:
    """What row t begins with: the colours of the coarser level, and halfway between them."""
    upper, lower = t // 2, min((t + 1) // 2, coarse.shape[0] - 1)
    for c in range(6):
        even, odd = lanes[0, c, LEAD:], lanes[1, c, LEAD:]
        _double(even, odd, coarse[upper, c, x:], coarse[lower, c, x:], evens)


@kernel
def _weigh_row(
    k: Any, own: Any, above: Any, below: Any, columns: int,
    first_row: bool, last_row: bool, first_column: bool, last_column: bool,
    relaxation: float, epsilon: float,
) -> None:  # fmt: skip
    """Both lanes' coefficients; the flags say where the picture ends."""
    for p in range(2):
        count = (columns + 1 - p) // 2
        _weigh_lane(
            k[p], own[p], own[1 - p], above[p], below[p], p, count, relaxation, epsilon
        )  # fmt: skip
        if first_row:
            _to_itself(k[p], 3, 0, count)
        if last_row:
            _to_itself(k[p], 4, 0, count)
    if first_column:
        _to_itself(k[0], 1, 0, 1)
    if last_column:
        _to_itself(k[1 - columns % 2], 2, (columns - 1) // 2, (columns - 1) // 2 + 1)


@kernel
def _write_row(
    planes: Any, foreground: Any, background: Any, lanes: Any, spare: Any, r: int,
    x0: int, first: int, columns: int,
) -> None:  # fmt: skip
    """A row that has had all its sweeps, to where it belongs."""
    if planes.shape[0] > 0:
        for c in range(6):
            _join(planes[r, c, x0:], lanes[0, c, first:], lanes[1, c, first:], columns)
    else:
        _write_bytes(foreground[r, 3 * x0 :], lanes, spare, 0, first, columns)
        _write_bytes(background[r, 3 * x0 :], lanes, spare, 3, first, columns)


@kernel
def _strip(
    colours: Any, k: Any, alphas: Any, final: Any, spare: Any,
    image_u8: Any, image_f32: Any, alpha_u8: Any, alpha_f32: Any, coarse: Any,
    planes: Any, foreground: Any, background: Any, step: int, height: int, width: int,
    y0: int, y1: int, x0: int, x1: int, sweeps: int, relaxation: float, epsilon: float,
) -> None:  # fmt: skip
    """Rows y0 to y1 and columns x0 to x1 of a level; x0 is even. The first three are the ring."""
    halves, ring = 2 * sweeps, 2 * sweeps + 2
    top, bottom = max(0, y0 - halves), min(height, y1 + halves) - 1
    near, far = max(0, x0 - halves), min(width, x1 + halves)
    columns = far - near
    for t in range(top, y1 + halves):
        if t <= bottom:
            s, y, x = t % ring, t * step, near * step
            _double_row(colours[s], coarse, t, near // 2, (columns + 1) // 2)
            if alpha_u8.shape[0] > 0:
                _take_alpha(alphas[s], alpha_u8[y, x:], step, columns, BYTE)
            else:
                _take_alpha(alphas[s], alpha_f32[y, x:], step, columns, f4(1))
            if image_u8.shape[0] > 0:
                _take_colours(k[s], image_u8[y, 3 * x :], step, columns, BYTE)
            else:
                _take_colours(k[s], image_f32[y, 3 * x :], step, columns, f4(1))
        r = t - 1
        if top <= r <= bottom:
            s, above, below = r % ring, max(r - 1, top) % ring, min(r + 1, bottom) % ring
            _weigh_row(
                k[s], alphas[s], alphas[above], alphas[below], columns,
                r == 0, r == height - 1, near == 0, far == width, relaxation, epsilon,
            )  # fmt: skip
        for j in range(halves):
            r = t - 1 - j
            if top <= r <= bottom:
                p, s = (r + j) & 1, r % ring
                _half_sweep(
                    colours[s, p], colours[s, 1 - p],
                    colours[(r - 1) % ring, p], colours[(r + 1) % ring, p],
                    k[s, p], p, (columns + 1 - p) // 2,
                )  # fmt: skip
        r = t - halves
        if y0 <= r < y1:
            lanes = colours[r % ring]
            if step == 1:
                _keep_known_row(final, lanes, k[r % ring])
                lanes = final
            _write_row(
                planes, foreground, background, lanes, spare, r,
                x0, LEAD + (x0 - near) // 2, x1 - x0,
            )  # fmt: skip


@kernel
def solve_band(
    image_u8: Any, image_f32: Any, alpha_u8: Any, alpha_f32: Any, coarse: Any,
    planes: Any, foreground: Any, background: Any, step: int, height: int, width: int,
    y0: int, y1: int, sweeps: int, relaxation: float, epsilon: float,
) -> None:  # fmt: skip
    """Rows y0 to y1 of a level of (height, width), into `planes` or, if that is empty, into bytes.

    Image (H, 3 W) and alpha (H, W) are the whole picture's; each comes in one type and is empty in
    the other, as compiling for every pair would take four times as long. Coarse (h', 6, w') and
    planes (h, 6, w) are float32, foreground and background (H, 3 W) uint8.
    """
    ring = 2 * sweeps + 2
    most = min(width, STRIP_COLUMNS + 4 * sweeps)
    lane = (most // 2 + 1 + 3 * LEAD) // LEAD * LEAD
    colours = np.zeros((ring, 2, 6, lane), f4)
    k = np.zeros((ring, 2, 11, lane), f4)
    alphas = np.zeros((ring, 2, lane), f4)
    final = np.zeros((2, 6, lane), f4)
    spare = np.zeros((6, lane), np.uint8)
    for x0 in range(0, width, STRIP_COLUMNS):
        _strip(
            colours, k, alphas, final, spare, image_u8, image_f32, alpha_u8, alpha_f32, coarse,
            planes, foreground, background, step, height, width,
            y0, y1, x0, min(width, x0 + STRIP_COLUMNS), sweeps, relaxation, epsilon,
        )  # fmt: skip
