#include "server/tools/serve/subcommand.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/types.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "config/rules.hpp"
#include "config/serve_command.hpp"
#include "config/yaml_file.hpp"
#include "server/base/background.hpp"
#include "server/base/process.hpp"
#include "server/daemon/server.hpp"
#include "server/daemon/state_folder.hpp"
#include "server/logging/log.hpp"
#include "server/protection/protection.hpp"
#include "server/tools/serve/flags.hpp"
#include "server/tools/serve/read_flags.hpp"

namespace gpunbd::tools {

namespace {

// Runs a server until a signal ends it.

// Flags can contradict a file although each of them is valid.
std::string find_contradiction(const config::ServeCommand& command,
                               const config::Options& options) {
    if (auto contradiction = config::rules::contradiction(options)) {
        return *std::move(contradiction);
    }
    if (const auto error = config::rules::admin_error(options)) return error->what;
    if (!command.run || !options.any_swap()) return {};
    return "--run and an export with swap exclude each other: the command would inherit real-time "
           "priority and the exemption from the OOM killer; leave one of the two out";
}

int serve_until_ended(const config::ServeCommand& command, config::Options options, pid_t parent,
                      const std::function<void()>& on_ready) {
    // Before the log starts its thread.
    const std::vector<std::string> unprotected =
        options.any_swap() ? server::protect_process() : std::vector<std::string>{};
    const server::Log log(options.log);
    for (const std::string& each : unprotected) spdlog::error("swap: {}", each);
    if (!unprotected.empty()) return server::exit_failure;
    try {
        if (command.exit_with_parent && !server::end_with_parent(parent)) {
            spdlog::info("--exit-with-parent: the parent has already ended");
            return 0;
        }
        return server::Server(command, std::move(options), log.events()).run(on_ready);
    } catch (const std::exception& error) {
        spdlog::error("{}", server::with_open_files_limit(error.what()));
        return server::exit_failure;
    }
}

// `parent`: the process that started this one. Returns the exit code.
int serve(const config::ServeCommand& command, pid_t parent) {
    config::Options options = command.options;
    if (command.config_file) {
        auto loaded = config::load_or_report(*command.config_file);
        if (!loaded) return server::exit_usage;
        options = std::move(*loaded);
        command.overrides.apply_to(options);
    }
    const auto problems = server::add_persistent_exports(options);
    for (const config::Problem& each : problems) fmt::print(stderr, "{}\n", each.text());
    if (!problems.empty()) return server::exit_usage;
    if (const std::string wrong = find_contradiction(command, options); !wrong.empty()) {
        fmt::print(stderr, "gpunbd serve: {}\n", wrong);
        return server::exit_usage;
    }
    if (!command.core_dumps) server::keep_memory_out_of_core_dumps();
    if (command.background) {
        return server::run_in_background("gpunbd serve", [&](const auto& on_ready) {
            return serve_until_ended(command, std::move(options), parent, on_ready);
        });
    }
    return serve_until_ended(command, std::move(options), parent, {});
}

}  // namespace

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
