#include "server/supervisor/notice.hpp"

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

TEST_CASE("notices: known lines, whole ones only") {
    const Notice all = read_notice(
        "READY=1\nSTOPPING=1\nFDSTORE=1\nFDSTOREREMOVE=1\nFDNAME=a b\nMAINPID=42\n"
        "X_GPUNBD_LIFELINE=1\n");
    CHECK(all.ready);
    CHECK(all.stopping);
    CHECK(all.exit_pipe);
    CHECK(all.store);
    CHECK(all.remove);
    CHECK(all.name == "a b");
    CHECK(all.main_pid == 42);
    for (const char* text : {"", "\n", "\n\n", "READY=", "READY=11", " READY=1", "ready=1",
                             "FDSTORE=0", "FDSTORE=1\r\nREADY=1 ", "XFDNAME=a", "STATUS=READY=1",
                             "STOPPING=0", "X_GPUNBD_LIFELINE="}) {
        CAPTURE(text);
        const Notice none = read_notice(text);
        CHECK_FALSE(none.ready);
        CHECK_FALSE(none.stopping);
        CHECK_FALSE(none.exit_pipe);
        CHECK_FALSE(none.store);
        CHECK_FALSE(none.remove);
        CHECK(none.name.empty());
        CHECK(none.main_pid == 0);
    }
    CHECK(read_notice(std::string_view("READY=1\0", 8)).ready == false);
    CHECK(read_notice("FDNAME=a=b").name == "a=b");
}

TEST_CASE("notices: a main process is a number above 0") {
    for (const char* digits : {"", "0", "-1", "+1", " 1", "1 ", "1x", "2147483648", "x"}) {
        CAPTURE(digits);
        CHECK(read_notice(std::string("MAINPID=") + digits).main_pid == -1);
    }
    CHECK(read_notice("MAINPID=2147483647").main_pid == 2147483647);
}

TEST_CASE("notices: the lines for the keeper's supervisor") {
    CHECK(to_pass_on("FDSTORE=1\nREADY=1\nMAINPID=3\nSTATUS=a\nSTOPPING=1\nWATCHDOG=1") ==
          "READY=1\nSTATUS=a");
    CHECK(to_pass_on("RELOADING=1\nMONOTONIC_USEC=7\n") == "RELOADING=1\nMONOTONIC_USEC=7");
    CHECK(to_pass_on("EXTEND_TIMEOUT_USEC=5") == "EXTEND_TIMEOUT_USEC=5");
    CHECK(to_pass_on("BARRIER=1").empty());
    CHECK(to_pass_on("").empty());
}

}  // namespace
}  // namespace gpunbd::server::test
