#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/rules.hpp"
#include "server/tools/client/failure.hpp"

namespace gpunbd::attach {

// The names of the kernel's NBD devices.

// The N of /dev/nbdN.
config::rules::Checked<std::uint32_t> nbd_device(std::string_view text);

// A device of the kernel's NBD client, as shown by /dev and sysfs.
class Device {
 public:
    // `root`: the folder that contains sys and proc; tests pass another one.
    explicit Device(std::uint32_t number, std::string root = "/")
        : number_(number), root_(std::move(root)) {}

    std::uint32_t number() const { return number_; }
    const std::string& root() const { return root_; }
    std::string name() const { return "nbd" + std::to_string(number_); }
    std::string path() const { return "/dev/" + name(); }
    std::string folder() const { return root_ + "sys/block/" + name(); }
    std::vector<std::string> partitions() const;  // nbd0p1, ...

    // The contents of a file in the device's folder, without the newline; nullopt if it does not
    // exist.
    std::optional<std::string> attribute(std::string_view name) const;
    std::optional<std::uint64_t> number_in(std::string_view name) const;
    std::optional<Failure> set(std::string_view name, std::string_view text) const;

    bool attached() const { return attribute("pid").has_value(); }
    std::uint64_t size() const;  // in bytes

    // Waits until the device has a size of `bytes` and a file in /dev. Fails after the time limit.
    std::optional<Failure> await(std::uint64_t bytes, std::chrono::milliseconds within) const;
    std::optional<Failure> await_detached(std::chrono::milliseconds within) const;

 private:
    bool has_file() const;

    std::uint32_t number_;
    std::string root_;
};

// The attached devices, ordered by number.
std::vector<Device> attached_devices(const std::string& root);

// The names in a folder, sorted; empty if the folder cannot be read.
std::vector<std::string> names_in(const std::string& folder);

}  // namespace gpunbd::attach
