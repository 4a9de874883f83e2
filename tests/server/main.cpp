#include <doctest/doctest.h>
#include <signal.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "tests/server/failing_allocation.hpp"
#include "tests/server/rig.hpp"

namespace gpunbd::server::test {

namespace {

std::atomic<std::size_t> errors{0};

// Formats every line as the server's log does, and counts lines of level error.
class Counting final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
    void sink_it_(const spdlog::details::log_msg& message) override {
        spdlog::memory_buf_t line;
        formatter_->format(message, line);
        if (message.level >= spdlog::level::err) ++errors;
    }
    void flush_() override {}
};

}  // namespace

std::size_t logged_errors() { return errors; }
void forget_logged_errors() { errors = 0; }

}  // namespace gpunbd::server::test

int main(int argc, char** argv) {
    ::signal(SIGPIPE, SIG_IGN);
    gpunbd::server::test::failing_allocation::fail_openssl_too();
    auto logger = std::make_shared<spdlog::logger>(
        "test", std::make_shared<gpunbd::server::test::Counting>());
    logger->set_level(spdlog::level::debug);
    spdlog::set_default_logger(std::move(logger));
    return doctest::Context(argc, argv).run();
}
