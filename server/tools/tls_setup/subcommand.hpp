// `gpunbd tls-setup`
#pragma once

#include "config/command_line/command.hpp"
#include "server/tools/tls_setup/tls_setup.hpp"

namespace gpunbd::tools {

class TlsSetupCommand final : public config::Command {
 public:
    TlsSetupCommand();
    void check() override;
    int run(const config::Commands& all) override;

    server::TlsSetupOptions settings;
};

}  // namespace gpunbd::tools
