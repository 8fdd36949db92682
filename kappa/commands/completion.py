"""The command `kappa completion`: prints the script that completes command lines in a shell.

The script runs `kappa __complete` (complete.py) each time the user presses TAB. So the words always
belong to the installed version of Kappa, and names of tables and other things are current.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import typer


class UnixShell(StrEnum):
    """A shell for which this module has a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


SCRIPTS: Mapping[UnixShell, str] = {
    UnixShell.BASH: """\
# bash completion of kappa: eval "$(kappa completion bash)"
_kappa() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :files) compopt -o default 2>/dev/null ;;
            :words) ;;
            *) COMPREPLY+=("${line%%$'\\t'*}") ;;
        esac
    done < <("${COMP_WORDS[0]/#\\~/$HOME}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o nosort -F _kappa kappa 2>/dev/null || complete -F _kappa kappa
""",
    UnixShell.ZSH: """\
#compdef kappa
# zsh completion of kappa: eval "$(kappa completion zsh)", after compinit
_kappa() {
    local line word about files program=${(Q)words[1]/#\\~/$HOME}
    local -a lines candidates
    lines=("${(@f)$("$program" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    for line in "${(@)lines}"; do
        case $line in
            :files) files=1 ;;
            :words|'') ;;
            *)
                word=${line%%$'\\t'*}
                about=${${line#$word}#$'\\t'}
                candidates+=("${word//:/\\\\:}${about:+:$about}")
                ;;
        esac
    done
    (( $#candidates )) && _describe -V kappa candidates
    [[ -n $files ]] && _files
}
if [[ ${funcstack[1]} == _kappa ]]; then _kappa "$@"; else compdef _kappa kappa; fi
""",
    UnixShell.FISH: """\
# fish completion of kappa: kappa completion fish | source
function __kappa_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in (command $words[1] __complete $words[2..-1] 2>/dev/null)
        switch $line
            case ':files'
                __fish_complete_path (commandline -ct)
            case ':words'
            case '*'
                echo $line
        end
    end
end
complete -c kappa -f -k -a '(__kappa_complete)'
""",
}


def completion(
    shell: Annotated[UnixShell, typer.Argument(help="the shell")],
) -> None:
    """Print the script with which a shell completes commands, options and names.

    Names are current: pipelines, tables, topics, builds, rollouts and generations. For bash, put
    the line of the example into ~/.bashrc. For zsh, put it into ~/.zshrc, after compinit. For fish,
    put the line `kappa completion fish | source` into config.fish.
    """
    sys.stdout.write(SCRIPTS[shell])
