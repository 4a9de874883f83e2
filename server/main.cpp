// gpunbd: exports memory of GPUs as NBD block devices.
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "config/command_line.hpp"
#include "config/quote.hpp"
#include "config/rules.hpp"
#include "config/yaml_file.hpp"
#include "server/access/question.hpp"
#include "server/attach/attach_process.hpp"
#include "server/attach/attachment_list.hpp"
#include "server/doctor/doctor.hpp"
#include "server/exports/device_list.hpp"
#include "server/keeping/exit_code.hpp"
#include "server/keeping/keeper.hpp"
#include "server/ping/ping.hpp"
#include "server/process/keeping_path.hpp"
#include "server/process/kept_list.hpp"
#include "server/process/log.hpp"
#include "server/process/parent.hpp"
#include "server/process/preflight.hpp"
#include "server/process/privileges.hpp"
#include "server/process/server.hpp"
#include "server/process/standard_streams.hpp"
#include "server/protection/protection.hpp"
#include "server/setup/tls_setup.hpp"
#include "server/status/status_command.hpp"
#include "server/status/top_command.hpp"

namespace {

using namespace gpunbd;

using server::exit_failure;
using server::exit_usage;

// The options of a file; every problem of it goes to standard error.
std::optional<config::Options> load(const std::string& path) {
    config::Loaded loaded = config::load_file(path);
    for (const auto& problem : loaded.problems) fmt::print(stderr, "{}\n", problem.text());
    if (!loaded.problems.empty()) return std::nullopt;
    return std::move(loaded.options);
}

// Flags may stand beside a file, which each is good for itself.
std::string why_not_together(const config::ServeCommand& command, const config::Options& options) {
    if (const auto misfit = config::rules::swap_misfit(options)) return misfit->what;
    if (const auto misfit = config::rules::admin_misfit(options)) return misfit->what;
    if (!command.run || !options.any_swap()) return {};
    return "--run and an export with swap exclude each other: the command would run in real time, "
           "and never be killed for its memory; leave one of the two out";
}

int serve(const config::ServeCommand& command, pid_t parent) {
    config::Options options = command.options;
    if (command.config_file) {
        auto loaded = load(*command.config_file);
        if (!loaded) return exit_usage;
        options = std::move(*loaded);
        command.overrides.apply_to(options);
    }
    if (const std::string wrong = why_not_together(command, options); !wrong.empty()) {
        fmt::print(stderr, "gpunbd serve: {}\n", wrong);
        return exit_usage;
    }
    if (!command.core_dumps) server::keep_memory_out_of_core_dumps();
    // Before the log has a thread.
    const std::vector<std::string> unprotected =
        options.any_swap() ? server::protect_process() : std::vector<std::string>{};
    const server::Log log(options.log);
    for (const std::string& each : unprotected) spdlog::error("swap: {}", each);
    if (!unprotected.empty()) return exit_failure;
    try {
        if (command.exit_with_parent && !server::end_with_parent(parent)) {
            spdlog::info("--exit-with-parent: the parent has ended already");
            return 0;
        }
        return server::Server(command, std::move(options), log.events()).run();
    } catch (const std::exception& error) {
        spdlog::error("{}", error.what());
        return exit_failure;
    }
}

int answer(const config::Question& question, const config::Options& options) {
    std::vector<std::string> lines;
    try {
        lines = server::what_it_may_open(options, server::client_in_question(question));
    } catch (const std::runtime_error& error) {
        fmt::print(stderr, "gpunbd check: {}\n", error.what());
        return exit_failure;
    }
    for (const std::string& line : lines) fmt::print("{}\n", line);
    return 0;
}

int check(const config::CheckCommand& command) {
    const auto options = load(command.file);
    if (!options) return exit_usage;
    // What a library logs must not come between the lines of the configuration.
    const server::Log log({.level = "error"});
    if (command.question) return answer(*command.question, *options);
    fmt::print("{}", config::to_yaml(*options));
    bool would_serve = true;
    for (const server::Finding& finding : server::try_out(*options)) {
        fmt::print(stderr, "{}: {}: {}{}\n", command.file, finding.key,
                   finding.failure ? "" : "note: ", finding.text);
        would_serve = would_serve && !finding.failure;
    }
    return would_serve ? 0 : exit_failure;
}

int doctor(const config::DoctorCommand& command) {
    const server::Log log({.level = "error"});  // of drivers
    const server::Diagnoses found =
        server::diagnose(command.topic, server::Machine(), command.config_file);
    fmt::print("{}", command.json ? server::as_json(found) : server::as_lines(found));
    const auto failed = [](const server::Diagnosis& each) {
        return each.verdict == server::Diagnosis::Verdict::fail;
    };
    return std::any_of(found.begin(), found.end(), failed) ? exit_failure : 0;
}

int tls_setup(const config::TlsSetupCommand& command) {
    std::string told;
    try {
        told = server::set_up_tls(command);
    } catch (const std::runtime_error& error) {
        fmt::print(stderr, "gpunbd tls-setup: {}\n", error.what());
        return exit_failure;
    }
    fmt::print("{}", told);
    return 0;
}

int keep(const config::KeepCommand& command) {
    return server::keep({.restarts = command.max_restarts,
                         .within = std::chrono::seconds(command.within),
                         .descriptors = command.max_descriptors,
                         .swap = command.swap},
                        command.server);
}

int kept(const config::KeptCommand& command) {
    std::optional<std::string> configured;
    if (command.config_file) {
        const auto options = load(*command.config_file);
        if (!options) return exit_usage;
        configured = options->keeping.socket;
    }
    std::string told;
    try {
        told = server::ask_what_is_kept(command, configured);
    } catch (const std::runtime_error& error) {
        fmt::print(stderr, "gpunbd kept: {}\n", error.what());
        return exit_failure;
    }
    fmt::print("{}", told);
    return 0;
}

int list_attached(const config::AttachListCommand& command) {
    const std::string root = "/";
    fmt::print("{}", command.json ? attach::attachment_json(root) : attach::attachment_table(root));
    return 0;
}

int ping(const config::PingCommand& command) {
    ::signal(SIGPIPE, SIG_IGN);  // which OpenSSL does not ask the kernel to leave out
    const auto told = server::ping(command);
    if (const auto* failed = std::get_if<Failure>(&told)) {
        fmt::print(stderr, "gpunbd ping: {}: {}\n", config::in_quotes(command.uri), failed->text);
        return exit_failure;
    }
    fmt::print("{}", std::get<std::string>(told));
    return 0;
}

int run(int argc, char** argv, pid_t parent) {
    const config::CommandLine line = config::parse_command_line(argc, argv);
    if (line.exit_code) {
        fmt::print(*line.exit_code == 0 ? stdout : stderr, "{}", line.message);
        return *line.exit_code;
    }
    if (line.serve) return serve(*line.serve, parent);
    if (line.keep) return keep(*line.keep);
    if (line.kept) return kept(*line.kept);
    if (line.attach) return attach::run_attach(*line.attach);
    if (line.attach_list) return list_attached(*line.attach_list);
    if (line.detach) return attach::run_detach(*line.detach);
    if (line.ping) return ping(*line.ping);
    if (line.status) return status::run_status(*line.status, server::likely_admin_folders());
    if (line.top) return status::run_top(*line.top, server::likely_admin_folders());
    if (line.check) return check(*line.check);
    if (line.doctor) return doctor(*line.doctor);
    if (line.tls_setup) return tls_setup(*line.tls_setup);
    return server::list_devices(line.devices->calibrate);
}

}  // namespace

int main(int argc, char** argv) {
    const pid_t parent = ::getppid();  // before it can end unseen
    server::occupy_closed_streams();
    int code = exit_failure;
    try {
        code = run(argc, argv, parent);
    } catch (const std::system_error& error) {
        // fmt::print() throws where standard output takes no more.
        server::tell_output_lost(error.code().value());
        return exit_failure;
    }
    return server::finish_output() || code != 0 ? code : exit_failure;
}
