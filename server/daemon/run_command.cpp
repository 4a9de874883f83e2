#include "server/daemon/run_command.hpp"

#include "server/daemon/first_export.hpp"

namespace gpunbd::server {

RunCommand::RunCommand(ServerContext& context, ServerControl& control)
    : context_(context), control_(control) {}

void RunCommand::start() {
    const config::Options& options = context_.options;
    command_.start(*context_.command.run, options.exports.front().name,
                   first_export_needs_tls(options));
}

void RunCommand::stop() {
    if (running()) context_.lifecycle.exit_code = command_.kill();
}

void RunCommand::on_child_exit() {
    if (command_.ended(context_.lifecycle.exit_code)) control_.drain();
}

}  // namespace gpunbd::server
