// The machine as the doctor sees it: files of /proc and /sys, and the rights of this process. In
// tests the files lie in a folder, and the rights are made up.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpunbd::server {

class Machine {
 public:
    // `root`: what stands before /proc, /sys, /run and /dev; empty: this machine's own.
    explicit Machine(std::string root = {}) : root_(std::move(root)) {}
    virtual ~Machine() = default;
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;

    // The file's text without the last end of line; nothing where it cannot be read.
    std::optional<std::string> text(const std::string& path) const;
    // Its first number.
    std::optional<std::uint64_t> number(const std::string& path) const;
    bool has(const std::string& path) const;
    // Names in a folder, sorted; none where there is none.
    std::vector<std::string> names(const std::string& folder) const;
    const std::string& root() const { return root_; }

    // Of this process; CAP_... of <linux/capability.h>, RLIMIT_...
    virtual bool capable(int capability) const;
    virtual rlim_t limit(int resource) const;
    // What a program prints first, or nothing where it cannot be run.
    virtual std::optional<std::string> first_line_of(const std::vector<std::string>& command) const;

 private:
    std::string root_;
};

}  // namespace gpunbd::server
