// The findings of `gpunbd doctor`, one per check.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gpunbd::storage::diagnosis {

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

}  // namespace gpunbd::storage::diagnosis
