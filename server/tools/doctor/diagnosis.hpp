// What `gpunbd doctor` finds: one line for each thing that it has looked at.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gpunbd::server {

struct Diagnosis {
    enum class Verdict { ok, warn, fail };

    Verdict verdict = Verdict::ok;
    std::string what;         // "nbd module"
    std::string is;           // "not loaded"
    std::string remedy = {};  // a command, or a setting; empty where all is well
};
using Diagnoses = std::vector<Diagnosis>;

inline Diagnosis well(std::string what, std::string is) {
    return {Diagnosis::Verdict::ok, std::move(what), std::move(is)};
}
inline Diagnosis doubtful(std::string what, std::string is, std::string remedy) {
    return {Diagnosis::Verdict::warn, std::move(what), std::move(is), std::move(remedy)};
}
inline Diagnosis bad(std::string what, std::string is, std::string remedy) {
    return {Diagnosis::Verdict::fail, std::move(what), std::move(is), std::move(remedy)};
}

// A figure that should be no less than that: fit, or doubtful with what makes it so.
inline Diagnosis no_less(std::uint64_t value, std::uint64_t least, std::string what, std::string is,
                         std::string remedy) {
    return value >= least ? well(std::move(what), std::move(is))
                          : doubtful(std::move(what), std::move(is), std::move(remedy));
}

}  // namespace gpunbd::server
