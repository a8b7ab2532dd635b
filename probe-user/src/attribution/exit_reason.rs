//! Why a guest leaves its CPU to KVM, in the words in which the kernel's own trace prints it.

/// `isa` of the kernel's `kvm_exit`: the numbers are those of Intel's VMX.
/// <https://github.com/torvalds/linux/blob/v6.12/arch/x86/kvm/trace.h> (`KVM_ISA_VMX`)
pub(super) const VMX: u32 = 1;
/// The same for AMD's SVM.
pub(super) const SVM: u32 = 2;
/// Above it, VMX has flags: of an entry that failed, and of enclaves.
const VMX_BASIC: u32 = 0xffff;
/// SVM numbers exits for exceptions by the exception's vector, from here on.
const SVM_EXCEPTIONS: std::ops::Range<u32> = 0x40..0x60;

/// <https://github.com/torvalds/linux/blob/v6.12/arch/x86/include/uapi/asm/vmx.h>
const VMX_REASONS: &[(u32, &str)] = &[
    (0, "EXCEPTION_NMI"),
    (1, "EXTERNAL_INTERRUPT"),
    (2, "TRIPLE_FAULT"),
    (3, "INIT_SIGNAL"),
    (4, "SIPI_SIGNAL"),
    (7, "INTERRUPT_WINDOW"),
    (8, "NMI_WINDOW"),
    (9, "TASK_SWITCH"),
    (10, "CPUID"),
    (12, "HLT"),
    (13, "INVD"),
    (14, "INVLPG"),
    (15, "RDPMC"),
    (16, "RDTSC"),
    (18, "VMCALL"),
    (19, "VMCLEAR"),
    (20, "VMLAUNCH"),
    (21, "VMPTRLD"),
    (22, "VMPTRST"),
    (23, "VMREAD"),
    (24, "VMRESUME"),
    (25, "VMWRITE"),
    (26, "VMOFF"),
    (27, "VMON"),
    (28, "CR_ACCESS"),
    (29, "DR_ACCESS"),
    (30, "IO_INSTRUCTION"),
    (31, "MSR_READ"),
    (32, "MSR_WRITE"),
    (33, "INVALID_STATE"),
    (34, "MSR_LOAD_FAIL"),
    (36, "MWAIT_INSTRUCTION"),
    (37, "MONITOR_TRAP_FLAG"),
    (39, "MONITOR_INSTRUCTION"),
    (40, "PAUSE_INSTRUCTION"),
    (41, "MCE_DURING_VMENTRY"),
    (43, "TPR_BELOW_THRESHOLD"),
    (44, "APIC_ACCESS"),
    (45, "EOI_INDUCED"),
    (46, "GDTR_IDTR"),
    (47, "LDTR_TR"),
    (48, "EPT_VIOLATION"),
    (49, "EPT_MISCONFIG"),
    (50, "INVEPT"),
    (51, "RDTSCP"),
    (52, "PREEMPTION_TIMER"),
    (53, "INVVPID"),
    (54, "WBINVD"),
    (55, "XSETBV"),
    (56, "APIC_WRITE"),
    (57, "RDRAND"),
    (58, "INVPCID"),
    (59, "VMFUNC"),
    (60, "ENCLS"),
    (61, "RDSEED"),
    (62, "PML_FULL"),
    (63, "XSAVES"),
    (64, "XRSTORS"),
    (67, "UMWAIT"),
    (68, "TPAUSE"),
    (74, "BUS_LOCK"),
    (75, "NOTIFY"),
];

/// <https://github.com/torvalds/linux/blob/v6.12/arch/x86/include/uapi/asm/svm.h>
const SVM_REASONS: &[(u32, &str)] = &[
    (0x000, "read_cr0"),
    (0x002, "read_cr2"),
    (0x003, "read_cr3"),
    (0x004, "read_cr4"),
    (0x008, "read_cr8"),
    (0x010, "write_cr0"),
    (0x012, "write_cr2"),
    (0x013, "write_cr3"),
    (0x014, "write_cr4"),
    (0x018, "write_cr8"),
    (0x060, "interrupt"),
    (0x061, "nmi"),
    (0x062, "smi"),
    (0x063, "init"),
    (0x064, "vintr"),
    (0x065, "cr0_sel_write"),
    (0x066, "read_idtr"),
    (0x067, "read_gdtr"),
    (0x068, "read_ldtr"),
    (0x069, "read_rt"),
    (0x06a, "write_idtr"),
    (0x06b, "write_gdtr"),
    (0x06c, "write_ldtr"),
    (0x06d, "write_rt"),
    (0x06e, "rdtsc"),
    (0x06f, "rdpmc"),
    (0x070, "pushf"),
    (0x071, "popf"),
    (0x072, "cpuid"),
    (0x073, "rsm"),
    (0x074, "iret"),
    (0x075, "swint"),
    (0x076, "invd"),
    (0x077, "pause"),
    (0x078, "hlt"),
    (0x079, "invlpg"),
    (0x07a, "invlpga"),
    (0x07b, "io"),
    (0x07c, "msr"),
    (0x07d, "task_switch"),
    (0x07e, "ferr_freeze"),
    (0x07f, "shutdown"),
    (0x080, "vmrun"),
    (0x081, "hypercall"),
    (0x082, "vmload"),
    (0x083, "vmsave"),
    (0x084, "stgi"),
    (0x085, "clgi"),
    (0x086, "skinit"),
    (0x087, "rdtscp"),
    (0x088, "icebp"),
    (0x089, "wbinvd"),
    (0x08a, "monitor"),
    (0x08b, "mwait"),
    (0x08d, "xsetbv"),
    (0x08f, "write_efer_trap"),
    (0x090, "write_cr0_trap"),
    (0x094, "write_cr4_trap"),
    (0x098, "write_cr8_trap"),
    (0x0a2, "invpcid"),
    (0x0a5, "bus_lock"),
    (0x0a6, "idle-hlt"),
    (0x400, "npf"),
    (0x401, "avic_incomplete_ipi"),
    (0x402, "avic_unaccelerated_access"),
    (0x403, "vmgexit"),
];

/// The kernel's word for `reason` on a processor with that `isa`; the number where it has none.
pub(super) fn name(isa: u32, reason: u32) -> String {
    let word = match isa {
        VMX => word(VMX_REASONS, reason & VMX_BASIC),
        SVM if SVM_EXCEPTIONS.contains(&reason) => {
            return format!("exception {}", reason - SVM_EXCEPTIONS.start);
        }
        SVM => word(SVM_REASONS, reason),
        _ => None,
    };
    word.map_or_else(|| format!("reason {reason:#x}"), str::to_owned)
}

fn word(words: &'static [(u32, &'static str)], reason: u32) -> Option<&'static str> {
    words.iter().find(|(number, _)| *number == reason).map(|(_, word)| *word)
}

#[cfg(test)]
mod tests {
    use super::{SVM, SVM_REASONS, VMX, VMX_REASONS, name};

    #[test]
    fn both_makers_exits_have_the_kernel_s_words() {
        assert_eq!([name(VMX, 48), name(VMX, 0x8000_0000 | 33)], ["EPT_VIOLATION", "INVALID_STATE"]);
        assert_eq!([name(SVM, 0x400), name(SVM, 0x78), name(SVM, 0x4e)], ["npf", "hlt", "exception 14"]);
        assert_eq!([name(VMX, 200), name(SVM, 0xffff), name(0, 1)], ["reason 0xc8", "reason 0xffff", "reason 0x1"]);
    }

    #[test]
    fn each_number_has_one_word() {
        for words in [VMX_REASONS, SVM_REASONS] {
            assert!(words.is_sorted_by(|one, other| one.0 < other.0));
        }
    }
}
