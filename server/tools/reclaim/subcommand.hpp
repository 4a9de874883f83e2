#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/command_line/command.hpp"
#include "server/tools/status/admin_server.hpp"

namespace gpunbd::status {

// `gpunbd reclaim`: asks a running server to give GPU memory back to other programs.
struct ReclaimOptions {
    ServerSelection server;
    std::string device;  // empty: all devices
    std::optional<std::uint64_t> bytes = {};
    bool all = false;
    bool end = false;
    std::optional<std::uint64_t> claim = {};  // that ends; unset: all
    std::optional<std::chrono::seconds> duration = {};
    bool json = false;
};

// `folders`: the usual folders of server sockets. Returns the exit status. Throws what fmt::print()
// throws.
int run_reclaim(const ReclaimOptions& command, const std::vector<std::string>& folders);

}  // namespace gpunbd::status

namespace gpunbd::tools {

// `gpunbd reclaim`
class ReclaimCommand final : public config::Command {
 public:
    ReclaimCommand();
    void store_arguments(const std::vector<std::string>& arguments) override;
    void check() override;
    int run(const config::Commands& all) override;

    status::ReclaimOptions settings;
};

}  // namespace gpunbd::tools
