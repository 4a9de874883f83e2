// `gpunbd keep`
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/command_line/command.hpp"

namespace gpunbd::tools {

class KeepCommand final : public config::Command {
 public:
    KeepCommand();
    void store_wrapped(const std::vector<std::string>& line) override;
    int run(const config::Commands& all) override;

    struct {
        std::uint64_t max_restarts = 10;
        std::uint64_t within = 60;  // seconds
        std::uint64_t max_descriptors = 16384;
        bool swap = false;
        bool background = false;
        std::vector<std::string> server = {};  // "serve" and its command line
    } settings;
};

}  // namespace gpunbd::tools
