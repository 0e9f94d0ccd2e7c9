"""The tool, in a process of its own."""

import verifiers.v1 as vf


class WeatherToolset(vf.Toolset[vf.ToolsetConfig]):
    TOOL_PREFIX = None

    @vf.tool
    def weather(self, city: str) -> str:
        """How warm it is."""
        return f"{len(city)} degrees in {city}"


if __name__ == "__main__":
    WeatherToolset.run()
