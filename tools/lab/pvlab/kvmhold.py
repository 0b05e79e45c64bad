# SPDX-License-Identifier: GPL-2.0
"""Keeps KVM's static keys from flipping while guests come and go.

kvm_has_noapic_vcpu, apic_hw_disabled, apic_sw_disabled and the preempt
notifiers' key are patched into running code when the first VM of a sort comes
and the last goes.  Under TCG a CPU that runs into such a patch has died of it
(int3).  So one VM with a vCPU that has no in-kernel APIC, and one with a
vCPU whose APIC is disabled, stay for as long as the host does.
"""

import fcntl
import os
import signal
import struct

KVM_CREATE_VM = 0xAE01
KVM_CREATE_VCPU = 0xAE41
KVM_CREATE_IRQCHIP = 0xAE60
SREGS_SIZE = 312
SREGS_APIC_BASE = 272
KVM_GET_SREGS = 0x8000AE83 | SREGS_SIZE << 16
KVM_SET_SREGS = 0x4000AE84 | SREGS_SIZE << 16
APIC_ENABLE = 1 << 11


def main():
    kvm = os.open("/dev/kvm", os.O_RDWR)
    without_apic = fcntl.ioctl(kvm, KVM_CREATE_VM, 0)
    fcntl.ioctl(without_apic, KVM_CREATE_VCPU, 0)
    disabled = fcntl.ioctl(kvm, KVM_CREATE_VM, 0)
    fcntl.ioctl(disabled, KVM_CREATE_IRQCHIP)
    vcpu = fcntl.ioctl(disabled, KVM_CREATE_VCPU, 0)
    sregs = bytearray(SREGS_SIZE)
    fcntl.ioctl(vcpu, KVM_GET_SREGS, sregs)
    base = struct.unpack_from("<Q", sregs, SREGS_APIC_BASE)[0]
    struct.pack_into("<Q", sregs, SREGS_APIC_BASE, base & ~APIC_ENABLE)
    fcntl.ioctl(vcpu, KVM_SET_SREGS, bytes(sregs))
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
