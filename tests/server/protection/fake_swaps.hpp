// A copy of the swap information in /proc and /sys, which a test fills.
#pragma once

#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace gpunbd::server::test {

class FakeSwaps {
 public:
    FakeSwaps() {
        root_ = ::mkdtemp(std::string("/tmp/gpunbd-swaps-XXXXXX").data());
        write("proc/swaps", "Filename\t\t\tType\t\tSize\t\tUsed\t\tPriority\n");
    }
    ~FakeSwaps() { std::filesystem::remove_all(root_); }
    FakeSwaps(const FakeSwaps&) = delete;
    FakeSwaps& operator=(const FakeSwaps&) = delete;

    void swaps_to(const std::string& path) {
        std::ofstream(root_ + "/proc/swaps", std::ios::app)
            << path << "                              partition\t8388604\t\t0\t\t-2\n";
    }
    void has(const std::string& device, std::uint64_t sectors, const std::string& backend = {}) {
        write("sys/class/block/" + device + "/size", std::to_string(sectors) + "\n");
        if (!backend.empty()) write("sys/class/block/" + device + "/backend", backend + "\n");
    }
    void lies_on(const std::string& upper, const std::string& lower) {
        std::filesystem::create_directories(root_ + "/sys/class/block/" + upper + "/slaves/" +
                                            lower);
    }
    const std::string& root() const { return root_; }

 private:
    void write(const std::string& name, const std::string& text) {
        const std::filesystem::path path = root_ + "/" + name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << text;
    }
    std::string root_;
};

}  // namespace gpunbd::server::test
