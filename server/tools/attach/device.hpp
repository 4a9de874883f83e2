// One device of the kernel's NBD client, as /dev and sysfs show it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/tools/client/failure.hpp"

namespace gpunbd::attach {

class Device {
 public:
    // `root`: where sys and proc are; another one is for tests.
    explicit Device(std::uint32_t number, std::string root = "/")
        : number_(number), root_(std::move(root)) {}

    std::uint32_t number() const { return number_; }
    const std::string& root() const { return root_; }
    std::string name() const { return "nbd" + std::to_string(number_); }
    std::string path() const { return "/dev/" + name(); }
    std::string folder() const { return root_ + "sys/block/" + name(); }
    std::vector<std::string> partitions() const;  // nbd0p1, ...

    // A file of its folder, less the newline; nothing: there is none.
    std::optional<std::string> attribute(std::string_view name) const;
    std::optional<std::uint64_t> number_in(std::string_view name) const;
    std::optional<Failure> set(std::string_view name, std::string_view text) const;

    bool attached() const { return attribute("pid").has_value(); }
    std::uint64_t size() const;  // in bytes

    // Its size is `bytes`, and its file is in /dev; a failure: not within that time.
    std::optional<Failure> await(std::uint64_t bytes, std::chrono::milliseconds within) const;
    std::optional<Failure> await_detached(std::chrono::milliseconds within) const;

 private:
    bool has_file() const;

    std::uint32_t number_;
    std::string root_;
};

// Those that are attached, in the order of their numbers.
std::vector<Device> attached_devices(const std::string& root);

// The names in a folder, sorted; none where it cannot be read.
std::vector<std::string> names_in(const std::string& folder);

}  // namespace gpunbd::attach
