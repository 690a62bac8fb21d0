"""``zoo export``: weights for other runtimes."""

import argparse
import json

SUMMARY = "Write weights as ONNX, a torch.export program or bare tensors, checked against the model."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("weights", help="a name (see zoo list weights), card, file or run folder")
    parser.add_argument("--format", required=True, choices=("onnx", "pt2", "safetensors"), help="what to write")
    parser.add_argument("--folder", help="where to look the name up, instead of the weights that come with the zoo")
    parser.add_argument("--output", metavar="FILE", help="NAME.FORMAT in this folder by default")
    parser.add_argument("--json", action="store_true", help="print the description instead of a summary")


def run(arguments: argparse.Namespace) -> int:
    """Export, check and say what was checked."""
    from zoo.pretrained import load_card
    from zoo.pretrained.exporting import export_weights

    card = load_card(arguments.weights, folder=arguments.folder)
    output = arguments.output or f"{card.name}.{arguments.format}"
    description = export_weights(arguments.weights, output, file_format=arguments.format, folder=arguments.folder)
    if arguments.json:
        print(json.dumps(description, indent=2))
        return 0
    for batch_size, difference in description["largest_difference_by_batch_size"].items():
        print(f"batch of {batch_size}: logits differ from the model's by at most {difference:.2g}")
    print(f"Written: {output}")
    print(f"Written: {output}.json (how images are prepared, what the logits mean)")
    return 0
