#include "server/ublk/device.hpp"

#include "tests/server/rig.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

TEST_CASE("ublk device: it is continued with the contents that it had, if they have outlived it") {
    for (const bool kept : {true, false}) {
        CAPTURE(kept);
        const Rig rig({.kept = kept});
        Export exported = *rig.exports.open("");
        exported.options.ublk.enabled = true;
        exported.info.instance = "1";
        exported.info.minimum_block = exported.info.preferred_block = 4096;
        ublk::DeviceInfo device;
        device.id = 3;
        device.mark = ublk::Mark(exported).value;
        CHECK(ublk::continues(exported, device) == kept);
        exported.options.ublk.id = 3;
        CHECK(ublk::continues(exported, device) == kept);
        exported.options.ublk.id = 4;
        CHECK_FALSE(ublk::continues(exported, device));
        exported.options.ublk = {};
        CHECK_FALSE(ublk::continues(exported, device));
        exported.options.ublk.enabled = true;
        exported.info.instance = "2";
        CHECK_FALSE(ublk::continues(exported, device));
    }
}

}  // namespace
}  // namespace gpunbd::server::test
