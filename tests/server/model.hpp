// A simple model of the contents of an export.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/server/client.hpp"

namespace gpunbd::server::test {

// Models the contents of the volume. A byte is unknown after a failed change of it.
class Model {
 public:
    explicit Model(std::uint64_t size) : bytes_(size), known_(size, true) {}
    void apply(const Ask& ask, bool succeeded);
    void check(const Ask& read, const Answer& answer) const;
    // Sends a request that has to succeed, and checks the reply.
    void ask(Client& client, const Ask& ask);

 private:
    Bytes bytes_;
    std::vector<char> known_;
};

}  // namespace gpunbd::server::test
