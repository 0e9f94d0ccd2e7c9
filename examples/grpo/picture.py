"""A curve as SVG."""

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 280, 46, 36, 16


def curve(values):
    """The reward of each step, between 0 and 1."""

    def x(index):
        return LEFT + index * (WIDTH - LEFT - 16) / max(len(values) - 1, 1)

    def y(value):
        return TOP + (1 - value) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
    ]
    for tick in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<path d="M{LEFT} {y(tick):.1f}H{WIDTH - 16}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end" fill="#555">{tick:g}</text>')
    for index in range(0, len(values), max(len(values) // 5, 1)):
        parts.append(f'<text x="{x(index):.1f}" y="{HEIGHT - 18}" text-anchor="middle" fill="#555">{index + 1}</text>')
    points = " ".join(f"{x(index):.1f},{y(value):.1f}" for index, value in enumerate(values))
    parts.append(f'<polyline points="{points}" fill="none" stroke="#06c" stroke-width="2"/>')
    parts += [f'<circle cx="{x(i):.1f}" cy="{y(value):.1f}" r="3" fill="#06c"/>' for i, value in enumerate(values)]
    parts.append(f'<text x="{WIDTH - 16}" y="{HEIGHT - 4}" text-anchor="end" fill="#555">step</text>')
    parts.append(f'<text x="{LEFT + 4}" y="{TOP + 12}" fill="#555">share of digits in the answers</text>')
    return "\n".join([*parts, "</svg>", ""])
