#!/usr/bin/env bash
# Renders the example reports of the studies that are there: docs/examples/make.sh [STUDIES [BENCH]]
#   STUDIES  where README.md's commands put the studies (studies/examples)
#   BENCH    the command (fedrela-bench)
# The gallery of relabelled images needs the images: set FEDRELA_DATA where they are not in the cache.
set -euo pipefail
studies=$(realpath "${1:-studies/examples}")
bench=${2:-fedrela-bench}
cd "$(dirname "$0")"

apart() { # pages have a folder of their own: the site makes pages of the .md files
    mkdir -p "$1/page"
    mv "$1"/*.html "$1/page/"
}

if [ -e "$studies/fashion_mnist_step" ]; then
    beside=()
    [ ! -e "$studies/fashion_mnist_step_moon" ] || beside=(--study "$studies/fashion_mnist_step_moon")
    "$bench" report paper_table14 --setting "α = 0.3" --format md,csv,html --out fashion_mnist_step \
        --study "$studies/fashion_mnist_step" "${beside[@]}"
    apart fashion_mnist_step
fi
if [ -e "$studies/cifar100_lt" ]; then
    "$bench" report "$studies/cifar100_lt" --format md,csv,html --out cifar100_lt
    "$bench" report paper_table2 --setting "CIFAR-100-LT, IF 100, α = 0.1" --format md,csv,html --out cifar100_lt \
        --study "$studies/cifar100_lt"
    apart cifar100_lt
fi
if [ -e "$studies/privacy" ]; then
    "$bench" report privacy --study "$studies/privacy" --format md --out privacy
fi
