// A copy of the swap information in /proc and /sys, which a test fills.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "tests/temporary_folder.hpp"

namespace gpunbd::server::test {

class FakeSwaps : public gpunbd::test::TemporaryFolder {
 public:
    FakeSwaps() { write("proc/swaps", "Filename\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"); }

    void swaps_to(const std::string& file) {
        write("proc/swaps", read("proc/swaps") + file +
                                "                              partition\t8388604\t\t0\t\t-2\n");
    }
    void has(const std::string& device, std::uint64_t sectors, const std::string& backend = {}) {
        write("sys/class/block/" + device + "/size", std::to_string(sectors) + "\n");
        if (!backend.empty()) write("sys/class/block/" + device + "/backend", backend + "\n");
    }
    void lies_on(const std::string& upper, const std::string& lower) {
        std::filesystem::create_directories(path("sys/class/block/" + upper + "/slaves/" + lower));
    }
};

}  // namespace gpunbd::server::test
