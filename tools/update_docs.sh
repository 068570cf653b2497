#!/bin/sh
# Rewrites what the program generates in the Markdown pages: tools/update_docs.sh [PROGRAM]
#
# docs/reference/cli.md is generated as a whole. In other pages a block begins with a line such as
#   <!-- braid --markdown TOPIC -->   or   <!-- braid lab report --docs NAME -->
# and ends with a line <!-- end -->; the lines between them are replaced by the output of that command, which
# runs in the root folder. Kept results are brought up to date first.
set -eu
program=$(realpath "${1:-build/braid}")
cd "$(dirname "$0")/.."
new=$(mktemp)
block=$(mktemp)
trap 'rm -f "$new" "$block"' EXIT

# Keeps the time stamp of a page that does not change.
put() {
  if cmp -s "$new" "$1"; then return; fi
  cat "$new" > "$1"
  echo "updated $1"
}

"$program" --markdown cli > "$new"
put docs/reference/cli.md

for kept in docs/results/data/*.json; do
  [ -e "$kept" ] || continue
  "$program" lab keep "$kept" > "$block"
  grep -v '^unchanged' "$block" || true
done

grep -rl --include='*.md' '^<!-- braid ' README.md docs | while IFS= read -r page; do
  inside=no
  : > "$new"
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in
      '<!-- braid '*' -->')
        [ $inside = no ] || { echo "$page: a block begins inside another: $line" >&2; exit 1; }
        inside=yes
        words=${line#'<!-- braid '}
        # shellcheck disable=SC2086  # words of a command line
        "$program" ${words%' -->'} > "$block"
        { printf '%s\n\n' "$line"; cat "$block"; echo; } >> "$new"
        ;;
      '<!-- end -->')
        inside=no
        printf '%s\n' "$line" >> "$new"
        ;;
      *) [ $inside = yes ] || printf '%s\n' "$line" >> "$new" ;;
    esac
  done < "$page"
  [ $inside = no ] || { echo "$page: a block has no <!-- end -->" >&2; exit 1; }
  put "$page"
done
