// gpunbd: exports GPU memory as NBD block devices.
#include <fmt/format.h>

#include <cstdio>
#include <system_error>

#include "config/command_line/parse.hpp"
#include "server/base/process.hpp"
#include "server/commands/commands.hpp"
#include "server/json/report_failure.hpp"
#include "storage/devices/drivers/device_drivers.hpp"

namespace {

using namespace gpunbd;

int run(int argc, char** argv) {
    storage::register_device_drivers();
    const config::Commands commands = server::all_commands();
    const config::Parsed parsed = config::parse(commands, argc, argv);
    if (!parsed.exit_code) return parsed.command->run(commands);
    if (parsed.as_json) return server::report_failure("", parsed.message, true, *parsed.exit_code);
    fmt::print(*parsed.exit_code == 0 ? stdout : stderr, "{}", parsed.message);
    return *parsed.exit_code;
}

}  // namespace

int main(int argc, char** argv) {
    server::occupy_closed_streams();
    int code = server::exit_failure;
    try {
        code = run(argc, argv);
    } catch (const std::system_error& error) {
        // fmt::print() throws if standard output cannot be written.
        server::report_lost_output(error.code().value());
        return server::exit_failure;
    }
    return server::finish_output() || code != 0 ? code : server::exit_failure;
}
