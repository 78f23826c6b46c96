"""A format: a line for each row of each step, its numbers separated by tabs."""

from attnctl.base.format import Format


def write_tsv(traces, stream):
    for trace in traces:
        for name, array in trace.items():
            for row in array.reshape(-1, array.shape[-1]).tolist():
                stream.write("\t".join([name, *map(str, row)]) + "\n")


TSV = Format("tsv", ".tsv", "attnctl_strided.tsv:write_tsv", text=True)
