#include "server/tools/serve/subcommand.hpp"

#include "server/tools/serve/flags.hpp"
#include "server/tools/serve/read_flags.hpp"
#include "server/tools/serve/serve.hpp"

namespace gpunbd::tools {

using namespace config;

ServeCommand::ServeCommand()
    : Command(
          {.name = "serve",
           .called = "start run server daemon export",
           .brief = "Serve exports to NBD clients",
           .usage = R"(Usage: gpunbd serve [FLAGS]
       gpunbd serve --config FILE [FLAGS]
)",
           .about =
               R"(Without --config, the flags describe a single export. Without any flags it uses
the free memory of the first GPU less a reserve or, without a GPU, 1 GiB of host
memory. SIZE is a number with K, M, G or T (binary; 1.5GiB is accepted as well),
or a number of bytes.
)",
           .groups = serve_flags(),
           .examples = R"(  gpunbd serve --size 8G --device cuda:0
  gpunbd serve --device cuda:0 --device cuda:1 --layout stripe --name fast
  gpunbd serve --size 1G --device host -U /run/gpunbd.sock
  gpunbd serve --size 2G --run 'nbdcopy a.img "$uri" && nbdinfo --map "$uri"'
  gpunbd serve --config /etc/gpunbd/gpunbd.yaml --log-level debug
)",
           .ending =
               R"(Exit codes: 0 ended by a signal, after replies to all requests; 1 failed at run
time; 2 wrong usage or configuration. With --run: the status of COMMAND, or
128+n if signal n ended it.
See also: gpunbd(8), gpunbd.yaml(5)
)",
           .manual = R"(Serve exports until a signal ends the server.
They are described by flags, or by the configuration
.Ar file
of
.Fl -config .
)"}) {
    for (FlagGroup& group : groups) {
        for (Flag& flag : group.flags) {
            flag.store = [this, name = flag.name](std::string_view text) {
                given_.add(name, text);
                return std::nullopt;
            };
        }
    }
}

void ServeCommand::check() { settings = read_serve_flags(*this, given_); }

int ServeCommand::run(const Commands&) { return serve(settings, parent_); }

}  // namespace gpunbd::tools
