#include "server/base/process.hpp"

#include "tests/temporary_folder.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

// Replaces systemctl while it exists.
class Systemctl {
 public:
    explicit Systemctl(const std::string& script) {
        folder_.write("systemctl", "#!/bin/bash\n" + script, 0755);
        ::setenv("PATH", (folder_.path() + ":" + before_).c_str(), 1);
    }
    ~Systemctl() { ::setenv("PATH", before_.c_str(), 1); }
    Systemctl(const Systemctl&) = delete;
    Systemctl& operator=(const Systemctl&) = delete;

 private:
    const gpunbd::test::TemporaryFolder folder_;
    const std::string before_ = std::getenv("PATH");
};

TEST_CASE("machine shutdown: a job to start shutdown.target") {
    const struct {
        const char* script;
        bool expected;
    } rows[] = {
        {"echo '61 shutdown.target start waiting'", true},
        {"echo '61 shutdown.target stop waiting'", false},
        {"echo 'No jobs running.'", false},
        {"exit 1", false},
        // systemd ends a service by signals to all its processes.
        {"kill -TERM $$; echo '61 shutdown.target start waiting'", true},
    };
    for (const auto& [script, expected] : rows) {
        CAPTURE(script);
        const Systemctl systemctl(script);
        CHECK(machine_is_shutting_down() == expected);
    }
}

}  // namespace
}  // namespace gpunbd::server::test
