#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/command_line/command.hpp"
#include "server/tools/client/failure.hpp"

namespace gpunbd::status {

// `gpunbd kept`: lists the kept contents of a running server, or drops some of them.
struct KeptOptions {
    std::optional<std::string> socket = {};
    bool json = false;
    std::optional<std::string> drop = {};  // the name of the contents
};

// `configured`: the socket that the configuration names, if a file was given. `folders`: the usual
// folders of server sockets. Returns the exit status. Throws what fmt::print() throws.
int run_kept(const KeptOptions& command, const std::optional<std::string>& configured,
             const std::vector<std::string>& folders);
// Formats the server's reply as a table.
Expected<std::string, Failure> kept_table(std::string_view json);

}  // namespace gpunbd::status

namespace gpunbd::tools {

// `gpunbd kept`
class KeptCommand final : public config::Command {
 public:
    KeptCommand();
    void check() override;
    int run(const config::Commands& all) override;

    std::optional<std::string> config_file;
    status::KeptOptions settings;
};

}  // namespace gpunbd::tools
