// A fake machine with a given amount of available memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "storage/devices/host/host_device.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/temporary_folder.hpp"

namespace gpunbd::storage::test {

struct FakeMachine : gpunbd::test::TemporaryFolder {
    void set_available(std::uint64_t bytes) const {
        write("proc/meminfo", "MemTotal: " + std::to_string(gib / 1024) +
                                  " kB\nMemAvailable: " + std::to_string(bytes / 1024) + " kB\n");
    }
    void set_group_limit(std::uint64_t bytes) const {
        write("proc/self/cgroup", "0::/\n");
        write("sys/fs/cgroup/memory.max", std::to_string(bytes) + "\n");
    }
    std::unique_ptr<Device> host(std::uint64_t reserve = 0) const {
        return open_host_device(0, {.reserve = reserve, .capacity = {}, .root = path()});
    }
};

}  // namespace gpunbd::storage::test
