"""Measure trained weights on images: accuracy or captions, calibration, cost, latency, memory; a table and a JSON.

python evaluate.py --weights resnet20_cbam.cifar10
python evaluate.py --weights runs/cluttered_digits/resnet20_cbam/seed0 --output evaluation.json
python evaluate.py --weights captioner_transformer.caption_scenes --split held_out
python evaluate.py --weights my_weights.yaml --data.name image_folder --data.root path/to/images
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from zoo.data import create_data
from zoo.evaluation.caption_report import evaluate_captioner, print_caption_report
from zoo.evaluation.latency import thread_limit
from zoo.evaluation.options import parse_evaluation_options
from zoo.evaluation.predictions import choose_device
from zoo.evaluation.report import evaluate_weights, print_report
from zoo.models.captioner import Captioner
from zoo.pretrained import load_pretrained
from zoo.serialization import write_atomically


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one evaluation; return the exit status, 2 for what the caller can mend."""
    options = parse_evaluation_options(arguments)
    try:
        device = choose_device(options.device)
        model, card = load_pretrained(options.weights, folder=options.folder, device=device, verify=True)
        data = create_data(options.data_name, class_names=card.class_names, **options.data_options)
        with thread_limit(options.num_threads):
            how: dict[str, Any] = {
                "data_name": options.data_name,
                "split": options.split,
                "data_options": options.data_options,
                "device": device,
                "precision": options.precision,
                "latency_batch_sizes": options.latency_batch_sizes,
            }
            if isinstance(model, Captioner):
                report = evaluate_captioner(model, card, data, **how)
                print_caption_report(report, Console())
            else:
                report = evaluate_weights(model, card, data, **how)
                print_report(report, Console())
        if options.output is not None:
            write_atomically(options.output, json.dumps(report, indent=2) + "\n")
            print(f"Written: {options.output}")
    except (ValueError, OSError) as error:
        print(f"evaluate.py: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
