#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpunbd::storage::diagnosis {

// The findings of `gpunbd doctor`, one per check.
struct Diagnosis {
    enum class Verdict { ok, warn, fail };

    Verdict verdict = Verdict::ok;
    std::string what;         // "nbd module"
    std::string is;           // "not loaded"
    std::string remedy = {};  // a command or a setting; empty if the check has passed
};
using Diagnoses = std::vector<Diagnosis>;

inline Diagnosis ok(std::string what, std::string is) {
    return {Diagnosis::Verdict::ok, std::move(what), std::move(is)};
}
inline Diagnosis warn(std::string what, std::string is, std::string remedy) {
    return {Diagnosis::Verdict::warn, std::move(what), std::move(is), std::move(remedy)};
}
inline Diagnosis fail(std::string what, std::string is, std::string remedy) {
    return {Diagnosis::Verdict::fail, std::move(what), std::move(is), std::move(remedy)};
}

// Checks that a value has at least the given size. If not, the result is a warning with the remedy.
inline Diagnosis no_less(std::uint64_t value, std::uint64_t least, std::string what, std::string is,
                         std::string remedy) {
    return value >= least ? ok(std::move(what), std::move(is))
                          : warn(std::move(what), std::move(is), std::move(remedy));
}

// The state of the machine: files of /proc and /sys, and the privileges of this process. Tests
// replace the files by a folder and override the privileges.
class Machine {
 public:
    // `root`: the prefix of /proc, /sys, /run and /dev; empty: this machine.
    explicit Machine(std::string root = {}) : root_(std::move(root)) {}
    virtual ~Machine() = default;
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;

    // The contents of a file without trailing newlines; nullopt if it cannot be read.
    std::optional<std::string> text(const std::string& path) const;
    // The number at the start of a file.
    std::optional<std::uint64_t> number(const std::string& path) const;
    bool has(const std::string& path) const;
    // The names in a folder, sorted; empty if it does not exist.
    std::vector<std::string> names(const std::string& folder) const;
    const std::string& root() const { return root_; }

    // Of this process; CAP_... of <linux/capability.h>, RLIMIT_...
    virtual bool capable(int capability) const;
    virtual rlim_t limit(int resource) const;
    // The first line that a program prints; nullopt if it cannot be run.
    virtual std::optional<std::string> first_line_of(const std::vector<std::string>& command) const;

 private:
    std::string root_;
};

}  // namespace gpunbd::storage::diagnosis
