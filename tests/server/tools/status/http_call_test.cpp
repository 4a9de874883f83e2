#include "server/tools/status/http_call.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace gpunbd::status {
namespace {

using Response = Failure::Response;

TEST_CASE(
    "http call: a request is repeated while the server is being replaced, and not otherwise") {
    const auto done = success("done");
    const Expected<std::string, Failure> unreachable = Failure{"connection refused"};
    const Expected<std::string, Failure> refused =
        Failure{.text = "no", .response = Response::refused};
    const Expected<std::string, Failure> replaced =
        Failure{.text = "later", .response = Response::replaced};
    struct Row {
        const char* name;
        std::vector<Expected<std::string, Failure>>
            results;  // of the attempts, all of which are made
    };
    for (const Row& row : {Row{"done", {done}}, Row{"unreachable", {unreachable}},
                           Row{"refused", {refused}}, Row{"replaced", {replaced, replaced, done}},
                           Row{"between two servers", {replaced, unreachable, done}},
                           Row{"refused by the successor", {replaced, unreachable, refused}}}) {
        CAPTURE(row.name);
        std::size_t attempts = 0;
        std::size_t pauses = 0;
        const Expected<std::string, Failure> last = repeat_while_replaced(
            [&] {
                REQUIRE(attempts < row.results.size());
                return row.results[attempts++];
            },
            [&] { ++pauses; });
        CHECK(attempts == row.results.size());
        CHECK(pauses == attempts - 1);
        CHECK(last.has_value() == row.results.back().has_value());
    }
}

}  // namespace
}  // namespace gpunbd::status
