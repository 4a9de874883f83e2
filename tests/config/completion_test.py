"""completion_test.py bash|zsh|fish: the completions of the shell, by the output of `gpunbd completion SHELL`,
match the commands and flags of `gpunbd --help`."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.environ.get('GPUNBD_PROGRAM', 'build/release/gpunbd')
SHELL = ''

URIS = {'nbd://127.0.0.1:10809/', 'nbds://', 'nbd+unix:///?socket='}

# The typed words, the last of them incomplete, and the expected completions.
ROWS = (
    (('ser',), {'serve'}),
    (('serve', '--layout', ''), {'linear', 'stripe'}),
    (('serve', '--layout', 's'), {'stripe'}),
    (('serve', '--layout=s'), {'stripe'}),
    (('serve', '--size', '1G', '--provision', ''), {'thin', 'full'}),
    (('serve', '--log-level', ''), {'trace', 'debug', 'info', 'warn', 'error'}),
    (('serve', '--log-format', ''), {'text', 'json'}),
    (('serve', '--device', ''), {'auto', 'host', 'cuda:0', 'cuda:1', 'cuda:2'}),  # from test files
    (('serve', '--device', 'cuda:2'), {'cuda:2'}),
    (('serve', '--device', 'host', '--device', 'h'), {'host'}),
    (('serve', '--config', ''), {'a file.yaml', 'b.yaml'}),
    (('serve', '--config', 'b'), {'b.yaml'}),
    (('serve', '--pidfile', ''), {'a file.yaml', 'b.yaml'}),
    (('serve', '-U', 'b'), {'b.yaml'}),
    (('serve', '--unix', 'b'), {'b.yaml'}),
    (('check', ''), {'a file.yaml', 'b.yaml'}),
    (('tls-setup', 'b'), {'b.yaml'}),
    (('tls-setup', '--ho'), {'--host'}),
    (('keep', ''), {'serve'}),
    (('keep', '--', 's'), {'serve'}),
    (('keep', '--', 'serve', '--layout', ''), {'linear', 'stripe'}),
    (('keep', '--', 'serve', '--stripe'), {'--stripe-size'}),
    (('keep', '--swap', 'serve', '--stripe'), {'--stripe-size'}),
    (('keep', 'serve', '--layout', 's'), {'stripe'}),
    (('kept', ''), {'a file.yaml', 'b.yaml'}),
    (('attach', ''), URIS),
    (('attach', 'nbd+'), {'nbd+unix:///?socket='}),
    (('attach', '--swap', 'nbd://1'), {'nbd://127.0.0.1:10809/'}),
    (('ping', ''), URIS),
    (('attach', 'nbd://host/', 'b'), {'b.yaml'}),
    (('detach', 'b'), {'b.yaml'}),
    (('top', '--token', 'b'), {'b.yaml'}),
    (('completion', ''), {'bash', 'zsh', 'fish'}),
    (('help', 'tl'), {'tls-setup'}),
    (('serve', '--size', ''), set()),
    (('export', 'rem'), {'remove'}),
    (('export', 'remove', ''), {'scratch', 'images'}),
    (('export', 'remove', 'images', 's'), {'scratch'}),
    (('export', 'resize', 'i'), {'images'}),
    (('export', 'rename', 'i'), {'images'}),
    (('export', 'create', ''), set()),
    (('export', 'restore', 'b'), {'b.yaml'}),
    (('disconnect', 's'), {'scratch'}),
    (('status', '--socket', '/sock'), {'/sockets/admin'}),
)


# Rows of --device name the ids of these drivers. Those of other drivers are ignored.
DRIVERS = {'auto', 'host', 'cuda', 'pci'}


def gpunbd(*arguments):
    return subprocess.run([PROGRAM, *arguments], check=True, capture_output=True, text=True).stdout


def flags_of(command):
    """The flags that the command's help describes."""
    return set(re.findall(r'^  (?:-\w, |    )(--[a-z-]+)', gpunbd(*command, '--help'), re.M))


# Completes each line in an interactive zsh on its own terminal. The completions are written to the file
# $answers, followed by a line "END" for each.
ZSH_SETUP = r'''
autoload -Uz compinit; compinit -D -u; source $script
compadd() {
  local -a found_; local one_
  if (( ! ${@[(I)-[OAD]]} )); then
    builtin compadd -A found_ "$@"
    for one_ in $found_; do print -r -- $one_ >>$answers; done
  fi
  builtin compadd "$@"
}
complete_and_report() { zle complete-word; print END >>$answers; zle kill-buffer }
zle -N complete_and_report
bindkey '^I' complete_and_report
print SET"UP"
'''
ZSH_DRIVER = r'''
zmodload zsh/zpty
zpty -b shell "script=$1 answers=$2 zsh -f -i"
zpty -w shell "source $3"
while zpty -r shell line && [[ $line != *SETUP* ]]; do done
typeset -i ends=0
for line in "${@:4}"; do
  zpty -w -n shell "$line"$'\t'
  while (( $(grep -c '^END$' $2) == ends )); do zpty -rt shell ignored; sleep 0.01; done
  (( ++ends ))
done
zpty -d shell
'''


class Completion(unittest.TestCase):
    def setUp(self):
        self.folder = self.temporary()
        for name in ('a file.yaml', 'b.yaml'):
            self.write(self.folder, name, '')
        self.other = self.temporary()
        # Files of three GPUs, and another file of the driver.
        for name in ('nvidia0', 'nvidia1', 'nvidia2', 'nvidiactl'):
            self.write(self.other, name, '')
        # A program that answers as a running server would make gpunbd offer do.
        program = self.write(self.other, 'gpunbd', '''#!/bin/sh
case "$*" in
"offer exports") printf 'scratch\\nimages\\n' ;;
"offer admin-sockets") echo /sockets/admin ;;
*) exit 1 ;;
esac
''')
        os.chmod(program, 0o755)
        script = gpunbd('completion', SHELL)
        self.assertIn('/dev/nvidia', script)
        self.script = self.write(self.other, 'script', script.replace('/dev/nvidia', f'{self.other}/nvidia'))

    def temporary(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    @staticmethod
    def write(folder, name, text):
        path = os.path.join(folder, name)
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)
        return path

    def run_shell(self, *arguments):
        done = subprocess.run([SHELL, *arguments], cwd=self.folder, capture_output=True, text=True,
                              env={**os.environ, 'PATH': f'{self.other}:{os.environ["PATH"]}', 'HOME': self.other, 'TERM': 'dumb'}, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        return done.stdout

    def offers(self, lines):
        """The completions of each line, which is a tuple of words."""
        if SHELL == 'zsh':
            return self.by_zsh(lines)
        return [self.by_bash(typed) if SHELL == 'bash' else self.by_fish(typed) for typed in lines]

    def by_bash(self, typed):
        # bash splits words at = and : for completion.
        words = ['gpunbd']
        for word in typed:
            words += [part for part in re.split('([=:]+)', word) if part] or ['']
        reply = self.run_shell(
            '--noprofile', '--norc', '-c', 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
            '_gpunbd; ((${#COMPREPLY[@]} == 0)) || printf "%s\\n" "${COMPREPLY[@]}"', 'bash', self.script,
            *words).splitlines()
        # bash replaces the part after the last ':'.
        head = typed[-1].rpartition('=')[2].rpartition(':')
        return {head[0] + head[1] + each for each in reply}

    def by_fish(self, typed):
        out = self.run_shell('--no-config', '-c', f'source {self.script}; complete -C "{" ".join(["gpunbd", *typed])}"')
        words = {each.split('\t')[0].replace('\\ ', ' ') for each in out.splitlines()}
        return {word.partition('=')[2] for word in words} if '=' in typed[-1] else words

    def by_zsh(self, lines):
        answers = self.write(self.other, 'answers', '')
        setup = self.write(self.other, 'setup', ZSH_SETUP)
        self.run_shell('-f', '-c', ZSH_DRIVER, 'zsh', self.script, answers, setup,
                       *(' '.join(['gpunbd', *typed]) for typed in lines))
        with open(answers, encoding='utf-8') as file:
            text = file.read().replace('\\ ', ' ').replace('\\?', '?')
        return [set(each.splitlines()) for each in text.split('END\n')[:-1]]

    def test_the_script_has_valid_syntax(self):
        if SHELL != 'fish':
            self.run_shell('-n', self.script)
        else:
            self.run_shell('--no-execute', self.script)

    def test_rows(self):
        for (typed, expected), offered in zip(ROWS, self.offers([typed for typed, _ in ROWS]), strict=True):
            with self.subTest(typed=typed):
                # Ignore offered flags unless the word starts with a dash.
                offered = {word for word in offered if word[:1] != '-' or typed[-1][:1] == '-'}
                if typed[-2:-1] == ('--device',):
                    offered = {word for word in offered if word.partition(':')[0] in DRIVERS}
                self.assertEqual(offered, expected)

    def test_every_flag_of_every_help(self):
        names = re.findall('^  ([a-z-]+)', gpunbd('--help').partition('Commands:')[2].partition('Flags:')[0], re.M)
        self.assertIn('serve', names)
        commands = [(), *((name,) for name in names)]
        for command, offered in zip(commands, self.offers([(*each, '--') for each in commands]), strict=True):
            with self.subTest(command=command):
                flags = flags_of(command)
                self.assertIn('--help', flags)
                self.assertEqual({each for each in offered if each[:2] == '--'}, flags)
        self.assertEqual({each for each in self.offers([('',)])[0] if each[0] != '-'}, set(names))


if __name__ == '__main__':
    SHELL = sys.argv.pop(1)
    if shutil.which(SHELL) is None:
        print(f'skipped: {SHELL} is not installed')
        sys.exit(77)
    unittest.main()
