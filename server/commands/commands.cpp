#include "server/commands/commands.hpp"

#include <memory>

#include "server/tools/attach/subcommand.hpp"
#include "server/tools/check/subcommand.hpp"
#include "server/tools/completion/subcommand.hpp"
#include "server/tools/detach/subcommand.hpp"
#include "server/tools/devices/subcommand.hpp"
#include "server/tools/disconnect/subcommand.hpp"
#include "server/tools/doctor/subcommand.hpp"
#include "server/tools/export/subcommand.hpp"
#include "server/tools/help/subcommand.hpp"
#include "server/tools/keep/subcommand.hpp"
#include "server/tools/kept/subcommand.hpp"
#include "server/tools/manual/subcommand.hpp"
#include "server/tools/offer/subcommand.hpp"
#include "server/tools/ping/subcommand.hpp"
#include "server/tools/reclaim/subcommand.hpp"
#include "server/tools/serve/subcommand.hpp"
#include "server/tools/status/subcommand.hpp"
#include "server/tools/stop/subcommand.hpp"
#include "server/tools/tls_setup/subcommand.hpp"
#include "server/tools/top/subcommand.hpp"

namespace gpunbd::server {

config::Commands all_commands() {
    config::Commands out;
    out.push_back(std::make_unique<tools::ServeCommand>());
    out.push_back(std::make_unique<tools::StopCommand>());
    out.push_back(std::make_unique<tools::KeepCommand>());
    out.push_back(std::make_unique<tools::KeptCommand>());
    out.push_back(std::make_unique<tools::ReclaimCommand>());
    out.push_back(std::make_unique<tools::ExportCommand>());
    out.push_back(std::make_unique<tools::DisconnectCommand>());
    out.push_back(std::make_unique<tools::AttachCommand>());
    out.push_back(std::make_unique<tools::DetachCommand>());
    out.push_back(std::make_unique<tools::PingCommand>());
    out.push_back(std::make_unique<tools::StatusCommand>());
    out.push_back(std::make_unique<tools::TopCommand>());
    out.push_back(std::make_unique<tools::DevicesCommand>());
    out.push_back(std::make_unique<tools::CheckCommand>());
    out.push_back(std::make_unique<tools::DoctorCommand>());
    out.push_back(std::make_unique<tools::TlsSetupCommand>());
    out.push_back(std::make_unique<tools::CompletionCommand>());
    out.push_back(std::make_unique<tools::HelpCommand>(out));
    out.push_back(std::make_unique<tools::ManualCommand>());
    out.push_back(std::make_unique<tools::OfferCommand>());
    return out;
}

}  // namespace gpunbd::server
